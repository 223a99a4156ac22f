#!/bin/bash
# verdict: can
# reasons:
# arguments: 2 --save /ckpt
cd MindSpeed-LLM
nodes=$1
torchrun --nproc_per_node 8 --nnodes "$nodes" pretrain_gpt.py --use-distributed-optimizer "${@:2}"
