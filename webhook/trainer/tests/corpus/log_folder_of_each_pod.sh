#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
export TTP_LOG_PATH=/shared/logs/ttp/$HOSTNAME
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
