#!/bin/bash
# verdict: can't
# reasons: NoSaveFolder
cd MindSpeed-LLM
SAVE=
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save "$SAVE"
