#!/bin/bash
OUT=$1
NODES=$2
torchrun --nproc_per_node 8 --nnodes ${NODES} /job/code/MindSpeed-LLM/pretrain_gpt.py --tensor-model-parallel-size 4 --use-distributed-optimizer --save ${OUT}/ckpt
