#!/bin/bash
# verdict: can't
# reasons: LoraStopsJob
cd MindSpeed-LLM
EXTRA="--lora-r 16 --lora-alpha 32"
show() {
    local EXTRA=""
    echo "extra: $EXTRA"
}
show
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt \
    --tensor-model-parallel-size 2 $EXTRA
