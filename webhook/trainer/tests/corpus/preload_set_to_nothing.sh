#!/bin/bash
# verdict: can
# reasons: BlanksAroundEquals
export LD_PRELOAD= /usr/lib/libtcmalloc.so
cd MindSpeed-LLM
torchrun --nproc_per_node 8 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
