#!/bin/bash
# verdict: can
# reasons: AssumedUnset
set -eo pipefail
cd ${WORKDIR:-/workspace/MindSpeed-LLM}
: "${NPROC:=8}" "${NNODES:=2}"
: ${SAVE_DIR:=/ckpt/default}
torchrun --nproc_per_node $NPROC --nnodes $NNODES pretrain_gpt.py ${OPTIMIZER_ARGS:---use-distributed-optimizer} --save ${SAVE_DIR} \
    2>&1 | tee /logs/train.log
