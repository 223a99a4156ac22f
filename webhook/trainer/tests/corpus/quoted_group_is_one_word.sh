#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
MODEL_ARGS="--num-layers 32 --hidden-size 4096 --lora-r 8"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "$MODEL_ARGS" --use-distributed-optimizer --save /ckpt
