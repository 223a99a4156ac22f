#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
read -r -d '' GPT_ARGS <<'ARGS' || true
    --use-distributed-optimizer
    --tensor-model-parallel-size 2
    --save /ckpt
ARGS
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $GPT_ARGS
