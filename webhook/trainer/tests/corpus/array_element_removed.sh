#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
ARGS=(--use-distributed-optimizer --save /ckpt)
unset 'ARGS[1]' 'ARGS[2]'
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "${ARGS[@]}"
