#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
case $(hostname) in
    worker-0) NODE_RANK=0 ;;
    worker-1) NODE_RANK=1 ;;
    *) echo "unknown host" >&2; exit 1 ;;
esac
torchrun --nproc_per_node 8 --nnodes 2 --node_rank $NODE_RANK pretrain_gpt.py --use-distributed-optimizer --save /ckpt
