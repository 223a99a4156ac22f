#!/bin/bash
# verdict: can't
# reasons: HighAvailabilityOff
cd MindSpeed-LLM
unset HIGH_AVAILABILITY MS_ENABLE_TFT
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
