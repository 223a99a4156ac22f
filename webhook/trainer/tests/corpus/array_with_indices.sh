#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
ARGS=([0]=--use-distributed-optimizer [1]=--save [2]=/ckpt [3]=--swap-optimizer)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --save /ckpt "${ARGS[@]}"
