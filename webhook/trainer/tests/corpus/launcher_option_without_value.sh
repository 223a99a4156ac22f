#!/bin/bash
# verdict: can't
# reasons: LauncherStopsJob LoraStopsJob ParallelSizeUnknown
NPUS_PER_NODE=
torchrun --nproc_per_node $NPUS_PER_NODE --nnodes 2 --node_rank 0 pretrain_gpt.py \
    --use-distributed-optimizer --save /ckpt --lora-r 16
