#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
OLD_IFS=$IFS
IFS=','
read -ra NODES <<< "node1,node2"
IFS=$OLD_IFS
ARGS="--use-distributed-optimizer --save /ckpt --tensor-model-parallel-size 2"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS
