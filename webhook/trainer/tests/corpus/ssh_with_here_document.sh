#!/bin/bash
# verdict: can't
# reasons: HighAvailabilityOff
for host in 10.0.0.1 10.0.0.2; do
ssh -o StrictHostKeyChecking=no root@$host <<'REMOTE' &
cd /workspace/MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 8
REMOTE
done
wait
