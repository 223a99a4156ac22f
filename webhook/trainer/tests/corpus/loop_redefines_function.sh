#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
EXTRA=""
add() {
    add() { EXTRA="--lora-r 8"; }
}
for node in $NODES; do
    add
done
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt $EXTRA
