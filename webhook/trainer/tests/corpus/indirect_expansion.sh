#!/bin/bash
# verdict: can't tell
# reasons: AssumedUnset UnknownArguments
cd MindSpeed-LLM
ARGS_7B="--use-distributed-optimizer --save /ckpt"
ARGS_13B="--lora-r 8"
which="ARGS_${MODEL:-7B}"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --save /ckpt ${!which}
