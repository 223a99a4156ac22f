#!/bin/bash
# verdict: can't tell
# reasons: CommandsDiffer LoraStopsJob
cd MindSpeed-LLM
ARGS="--use-distributed-optimizer --save /ckpt"
if [ -e /job/lora.json ]; then
    tune() { ARGS="$ARGS --lora-r 8"; }
else
    tune() { :; }
fi
tune
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS
