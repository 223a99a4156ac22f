#!/bin/bash
# verdict: can't
# reasons: LoraStopsJob PostTraining
su - train -c "cd MindSpeed-LLM; export HIGH_AVAILABILITY=dump; torchrun --nproc_per_node 8 --nnodes 2 posttrain_gpt.py --save /ckpt --use-distributed-optimizer --lora-r 8"
