#!/bin/bash
# verdict: can't tell
# reasons: CommandsDiffer LoraStopsJob
cd MindSpeed-LLM
for method in lora none; do
    if [ -e "/job/$method" ]; then
        EXTRA="--lora-r 8"
        break
    fi
    EXTRA=""
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
