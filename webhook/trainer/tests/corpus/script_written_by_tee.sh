#!/bin/bash
# verdict: can
# reasons:
mkdir -p /tmp/run
tee /tmp/run/inner.sh >/dev/null <<'INNER'
cd /workspace/MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt "$@"
INNER
chmod +x /tmp/run/inner.sh
bash /tmp/run/inner.sh --bf16
