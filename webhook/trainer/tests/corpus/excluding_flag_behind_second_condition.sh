#!/bin/bash
# verdict: can't tell
# reasons: CommandsDiffer FlagExcludesDump
cd MindSpeed-LLM
ARGS=(--use-distributed-optimizer --save /ckpt)
[[ "${MEMORY_TIGHT:-}" == yes || -f /job/tight ]] && ARGS+=(--swap-optimizer)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "${ARGS[@]}"
