#!/bin/bash
# verdict: can
# reasons: 

set -e
cd "/job/MindSpeed-LLM" || exit 1
set -- --use-distributed-optimizer --save /ckpt
[ -n "$DEBUG_TRAIN" ] && echo debug
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "$@"
