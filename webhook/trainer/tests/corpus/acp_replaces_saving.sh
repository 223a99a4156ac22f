#!/bin/bash
# verdict: can
# reasons: AcpBeside
cd /job/MindSpeed-LLM
export MINDIO_AUTO_PATCH_MEGATRON=true
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
