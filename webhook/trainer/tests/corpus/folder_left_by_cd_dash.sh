#!/bin/bash
# verdict: can't tell
# reasons: FrameworkUnclear
cd /workspace/MindSpeed-LLM
python convert_ckpt.py --load-dir /hf --save-dir /mg
cd -
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
