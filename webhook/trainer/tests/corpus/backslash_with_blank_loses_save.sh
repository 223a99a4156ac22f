#!/bin/bash
# verdict: can't
# reasons: BlankBehindBackslash NoSaveFolder UnknownArguments
cd MindSpeed-LLM
torchrun --nproc_per_node 8 \
    pretrain_gpt.py \
    --use-distributed-optimizer \ 
    --save /ckpt
