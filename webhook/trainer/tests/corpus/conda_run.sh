#!/bin/bash
# verdict: can
# reasons:
cd /workspace/MindSpeed-LLM
conda run -n train --no-capture-output torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
