#!/bin/bash
# verdict: can
# reasons: ReplicasOnOneNode
cd MindSpeed-LLM
MOE_ARGS="--num-experts 64 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1"
torchrun --nproc_per_node 16 --nnodes 4 pretrain_gpt.py $MOE_ARGS --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \
    --context-parallel-size 2 --use-distributed-optimizer --save /ckpt
