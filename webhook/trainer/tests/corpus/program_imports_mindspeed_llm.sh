#!/bin/bash
# verdict: can
# reasons:
# files: pretrain_gpt.py
cd /job/code
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
