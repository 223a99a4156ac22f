#!/bin/bash
# verdict: can't
# reasons: NoReplica
cd MindSpeed-LLM
NODES=(10.0.0.1 10.0.0.2)
WORLD=$(( ${#NODES[@]} * 8 ))
torchrun --nproc_per_node 8 --nnodes ${#NODES[@]} pretrain_gpt.py --use-distributed-optimizer --save /ckpt \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --global-batch-size $WORLD
