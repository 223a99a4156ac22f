#!/bin/bash
# verdict: can't
# reasons: HighAvailabilityOff
HOSTS=node[0-1]
pdsh -w $HOSTS "cd /workspace/MindSpeed-LLM && torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt"
