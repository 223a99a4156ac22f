#!/bin/bash
# verdict: can't
# reasons: LauncherStopsJob LoraStopsJob NoReplica
ARGS="--nproc_per_node 8 \ 
    --nnodes 1"
torchrun $ARGS pretrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 16 \
    --tensor-model-parallel-size 8
