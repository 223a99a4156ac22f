#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
ARGS="--use-distributed-optimizer --swap-attention --save /ckpt"
ARGS=${ARGS//--swap-attention/}
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS
