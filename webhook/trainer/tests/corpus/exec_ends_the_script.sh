#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
exec torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
torchrun --nproc_per_node 8 posttrain_gpt.py --lora-r 8
