#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
DATA=""
for part in /data/a /data/b /data/c; do
    [ -s "$part.idx" ] || continue
    DATA="$DATA 1.0 $part"
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
