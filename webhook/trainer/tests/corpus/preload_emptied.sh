#!/bin/bash
# verdict: can
# reasons: PreloadOverwritten
export LD_PRELOAD=
cd MindSpeed-LLM
torchrun --nproc_per_node 8 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
