#!/bin/bash
# verdict: can't tell
# reasons: FrameworkUnclear
if [ -d /opt/MindSpeed-LLM ]; then
    cd /opt/MindSpeed-LLM
else
    cd /opt/Megatron-LM
fi
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
