#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments ParallelSizeUnknown
cd MindSpeed-LLM
nodes=$1
torchrun --nproc_per_node 8 --nnodes "$nodes" pretrain_gpt.py --use-distributed-optimizer --save /ckpt "${@:2}"
