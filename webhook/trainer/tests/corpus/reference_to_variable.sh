#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments UnknownValue
cd MindSpeed-LLM
ARGS="--use-distributed-optimizer --save /ckpt"
add() {
    local -n list=$1
    list="$list $2"
}
add ARGS "--lora-r 8"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS
