#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd /workspace/MindSpeed-LLM
/opt/site/bin/with-licence torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
