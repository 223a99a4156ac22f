#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
: <<'COMMENT'
torchrun --nproc_per_node 8 posttrain_gpt.py --lora-r 8
it's an old command
COMMENT
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
