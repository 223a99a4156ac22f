#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
cmd=(torchrun --nproc_per_node 8 --nnodes 2)
cmd+=(pretrain_gpt.py)
cmd+=(--use-distributed-optimizer --save /ckpt)
eval "${cmd[*]}"
