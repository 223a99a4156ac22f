#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
CMD="torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py"
CMD+=" --use-distributed-optimizer"
CMD+=" --save /ckpt/$(date +%m%d)"
echo "$CMD"
nohup $CMD > /logs/train.log 2>&1 &
PID=$!
trap "kill $PID" TERM INT
wait $PID
exit $?
