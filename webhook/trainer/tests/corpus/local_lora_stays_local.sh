#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
EXTRA=""
show_lora() {
    local EXTRA="--lora-r 16"
    echo "with $EXTRA it would be LoRA"
}
show_lora
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt \
    --tensor-model-parallel-size 2 $EXTRA
