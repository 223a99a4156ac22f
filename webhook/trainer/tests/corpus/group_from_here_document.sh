#!/bin/bash
# verdict: can't
# reasons: FlagExcludesDump
cd MindSpeed-LLM
ARGS=$(cat <<EOF
  --use-distributed-optimizer
  --swap-optimizer
EOF
)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS --save /ckpt
