#!/bin/bash
# verdict: can't
# reasons: NoReplica
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt \
    --tensor-model-parallel-size 2 --context-parallel-size 8
