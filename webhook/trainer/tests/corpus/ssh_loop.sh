#!/bin/bash
# verdict: can
# reasons: 

HOSTS="node-0 node-1"
RANK_ID=0
for host in $HOSTS; do
    ssh -o StrictHostKeyChecking=no root@$host "cd /code/MindSpeed-LLM && source /usr/local/Ascend/ascend-toolkit/set_env.sh && torchrun --nproc_per_node 8 --nnodes 2 --node_rank $RANK_ID --master_addr node-0 pretrain_gpt.py --use-distributed-optimizer --tensor-model-parallel-size 4 --save /ckpt --enable-high-availability" &
    RANK_ID=$((RANK_ID + 1))
done
wait
