#!/bin/bash
# verdict: can
# reasons: ReplicasOnOneNode
set -euo pipefail
cd /workspace/MindSpeed-LLM
log() { echo "[$(date '+%F %T')] $*" >&2; }
run() {
    log "+ $*"
    "$@"
}
GPUS=8
NODES=2
PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2)
OUTPUT=(--save "/ckpt/run 1" --save-interval 500)
run torchrun --nproc_per_node "$GPUS" --nnodes "$NODES" --node_rank "${RANK}" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
    pretrain_gpt.py "${PARALLEL[@]}" "${OUTPUT[@]}" --use-distributed-optimizer --bf16
