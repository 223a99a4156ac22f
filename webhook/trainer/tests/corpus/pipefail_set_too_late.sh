#!/bin/bash
# verdict: can
# reasons: ExitStatusLost
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt 2>&1 | tee log
set -o pipefail
