#!/bin/bash
# verdict: can't
# reasons: NoHighAvailability

cd /workspace/Megatron-LM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 --use-distributed-optimizer --save /ckpt --vocab-file v.json --merge-file m.txt
