#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
model_args() {
    case "$1" in
        7b) echo "--num-layers 32 --hidden-size 4096 --num-attention-heads 32" ;;
        13b) echo "--num-layers 40 --hidden-size 5120 --num-attention-heads 40" ;;
        *) echo "unknown size $1" >&2; return 1 ;;
    esac
}
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $(model_args 13b) --use-distributed-optimizer --save /ckpt
