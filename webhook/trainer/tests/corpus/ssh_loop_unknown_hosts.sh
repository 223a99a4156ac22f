#!/bin/bash
# verdict: can
# reasons: 

while read -r host; do
    ssh "$host" "cd /code/MindSpeed-LLM; nohup torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --enable-high-availability --tensor-model-parallel-size 4 --save /ckpt > /tmp/log 2>&1 &"
done < /job/hostfile
