#!/bin/bash
# verdict: can't tell
# reasons: ScriptMissing UnknownArguments UnknownValue
EXTRA=""
source ./set_env.sh
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
