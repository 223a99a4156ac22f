#!/bin/bash
# verdict: can
# reasons:
# files: extra_args.txt
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $(< extra_args.txt)
