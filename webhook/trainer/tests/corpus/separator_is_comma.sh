#!/bin/bash
# verdict: can't
# reasons: LoraStopsJob
cd MindSpeed-LLM
IFS=','
EXTRA="--lora-r,8,--lora-alpha,16"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
