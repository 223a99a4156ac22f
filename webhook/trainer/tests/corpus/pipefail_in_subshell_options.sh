#!/bin/bash
# verdict: can
# reasons:
bash -eo pipefail -c 'cd MindSpeed-LLM; torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt |& tee log'
