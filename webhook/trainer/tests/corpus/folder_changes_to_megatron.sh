#!/bin/bash
# verdict: can't
# reasons: NoHighAvailability
cd /workspace/MindSpeed-LLM
pip install -r requirements.txt
cd ../Megatron-LM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
