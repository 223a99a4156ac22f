#!/bin/bash
# verdict: can't
# reasons: NoSaveFolder
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --save /ckpt --use-distributed-optimizer --save=
