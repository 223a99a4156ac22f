#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
# a comment \ 
echo a | tr a \ 
torchrun --nproc_per_node 8 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
