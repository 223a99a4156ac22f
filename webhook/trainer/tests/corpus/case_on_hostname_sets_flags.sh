#!/bin/bash
# verdict: can't tell
# reasons: CommandsDiffer NoReplica
cd MindSpeed-LLM
case "$(hostname)" in
    *-a3-*) TP=16 ;;
    *) TP=8 ;;
esac
torchrun --nproc_per_node 16 pretrain_gpt.py --tensor-model-parallel-size $TP --use-distributed-optimizer --save /ckpt
