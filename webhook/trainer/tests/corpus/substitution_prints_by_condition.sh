#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer \
    $( if [ -d /ckpt ]; then echo "--save /ckpt"; fi )
