#!/bin/bash
# verdict: can't
# reasons: LauncherStopsJob LoraStopsJob NoReplica
OPTION=
torchrun --nproc_per_node 8 $OPTION 2 --node_rank 0 pretrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 16 \
    --tensor-model-parallel-size 8
