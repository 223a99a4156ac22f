#!/bin/bash
# verdict: can't tell
# reasons: CommandsDiffer LoraStopsJob UnknownValue
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt ${LORA:+--lora-r $LORA}
