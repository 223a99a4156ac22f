#!/bin/bash
# verdict: can't tell
# reasons: BlankBehindBackslash UnknownArguments
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt \ 
    --lora-r 8 \
    --bf16
