#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
STEP=0
EXTRA=""
for node in $NODES; do
    if [ "$STEP" = 1 ]; then
        EXTRA="--lora-r 8"
    fi
    STEP=1
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
