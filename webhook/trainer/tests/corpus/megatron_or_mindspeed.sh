#!/bin/bash
# verdict: can't tell
# reasons: FrameworkUnclear

torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 --use-distributed-optimizer --save /ckpt
