#!/bin/bash
# verdict: can't tell
# reasons: UnknownValue
cd MindSpeed-LLM
env -u HIGH_AVAILABILITY torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
