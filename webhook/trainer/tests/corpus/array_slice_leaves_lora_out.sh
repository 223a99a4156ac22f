#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
ARGS=(--lora-r 8 --use-distributed-optimizer --save /ckpt)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "${ARGS[@]:2}"
