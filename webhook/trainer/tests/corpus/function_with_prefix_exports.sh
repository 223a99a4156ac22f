#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
keep() { export EXTRA; }
EXTRA='--lora-r 8' keep
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
