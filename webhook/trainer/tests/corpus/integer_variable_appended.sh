#!/bin/bash
# verdict: can't tell
# reasons: ParallelSizeUnknown
cd MindSpeed-LLM
declare -i TP=1
TP+=1
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt --tensor-model-parallel-size $TP
