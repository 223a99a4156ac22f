#!/bin/bash
# verdict: can't tell
# reasons: FlagAsCommand OptimizerUnconfirmed

cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --save /ckpt \
    # --recompute-granularity full \
    --use-distributed-optimizer \
    --lora-r 8
