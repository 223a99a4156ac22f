#!/bin/bash
# verdict: can
# reasons: 

bash -c "cd /job/code/MindSpeed-LLM; torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --use-distributed-optimizer --tensor-model-parallel-size=2 --save=/ckpt"
