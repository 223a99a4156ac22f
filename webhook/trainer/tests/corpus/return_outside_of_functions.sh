#!/bin/bash
# verdict: can't
# reasons: LoraStopsJob
cd MindSpeed-LLM
[ -n "$MASTER_ADDR" ] && return
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 8
