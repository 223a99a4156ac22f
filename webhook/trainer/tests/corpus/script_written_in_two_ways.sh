#!/bin/bash
# verdict: can't tell
# reasons: ScriptMissing
if [ -n "$LORA" ]; then
cat > /tmp/inner.sh <<'INNER'
cd MindSpeed-LLM
torchrun --nproc_per_node 8 posttrain_gpt.py --lora-r 8
INNER
else
cat > /tmp/inner.sh <<'INNER'
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
INNER
fi
bash /tmp/inner.sh
