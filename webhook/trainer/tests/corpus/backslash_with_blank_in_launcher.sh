#!/bin/bash
# verdict: can't tell
# reasons: BlankBehindBackslash NoTrainer
cd MindSpeed-LLM
torchrun --nproc_per_node 8 \ 
    pretrain_gpt.py --use-distributed-optimizer --save /ckpt
