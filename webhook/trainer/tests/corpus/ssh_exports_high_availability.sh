#!/bin/bash
# verdict: can
# reasons:
for host in 10.0.0.1 10.0.0.2; do
    ssh $host "export HIGH_AVAILABILITY=dump; cd /workspace/MindSpeed-LLM; \
        torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt" &
done
wait
