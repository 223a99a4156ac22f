#!/bin/bash
# verdict: can't
# reasons: NoHighAvailability
# files: pretrain_megatron.py
cd /job/MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 ../other/pretrain_megatron.py --use-distributed-optimizer --save /ckpt
