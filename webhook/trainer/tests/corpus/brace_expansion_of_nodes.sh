#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
for n in node-{0..1}; do
    echo "checking $n"
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
