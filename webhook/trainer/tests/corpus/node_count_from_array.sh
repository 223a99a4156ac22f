#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
NODES=(10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4)
NNODES=${#NODES[@]}
MASTER=${NODES[0]}
torchrun --nproc_per_node 8 --nnodes $NNODES --master_addr $MASTER pretrain_gpt.py --use-distributed-optimizer --save /ckpt \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2
