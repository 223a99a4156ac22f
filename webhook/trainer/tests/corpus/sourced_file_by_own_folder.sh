#!/bin/bash
# verdict: can
# reasons: ReplicasOnOneNode
# files: model_args.sh

SCRIPT_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SCRIPT_DIR/model_args.sh"

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --distributed-backend nccl \
    --save $CKPT_SAVE_DIR
