#!/bin/bash
# verdict: can't
# reasons: HighAvailabilityOff
cd MindSpeed-LLM
leave() { break; }
for x in 1 2; do
    leave
    unset HIGH_AVAILABILITY
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
