#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
torchrun --standalone --nproc_per_node 8 --max_restarts 0 --log_dir /logs pretrain_gpt.py --use-distributed-optimizer --save /ckpt
