#!/bin/bash
# verdict: can
# reasons: AcpBeside
# files: pretrain_mamba.py
cd /job/code
torchrun --nproc_per_node 8 --nnodes 2 pretrain_mamba.py --use-distributed-optimizer --save /ckpt
