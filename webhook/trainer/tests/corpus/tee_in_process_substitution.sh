#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
exec > >(tee -a /logs/train.log) 2>&1
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
