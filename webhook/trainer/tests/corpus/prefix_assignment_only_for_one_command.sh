#!/bin/bash
# verdict: can't
# reasons: FlagExcludesDump
cd MindSpeed-LLM
EXTRA="--swap-attention"
EXTRA="" python tools/check_env.py
EXTRA="" torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer \
    --save /ckpt $EXTRA
