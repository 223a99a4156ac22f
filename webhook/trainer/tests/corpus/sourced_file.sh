#!/bin/bash
# verdict: can
# reasons: ReplicasOnOneNode
# files: model_args.sh

source ./model_args.sh

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --distributed-backend nccl \
    --save $CKPT_SAVE_DIR
