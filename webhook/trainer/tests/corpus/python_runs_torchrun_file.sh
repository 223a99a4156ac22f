#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
python3 /usr/local/bin/torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
