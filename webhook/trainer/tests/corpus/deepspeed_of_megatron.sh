#!/bin/bash
# verdict: can't tell
# reasons: FrameworkUnclear FrameworkUnconfirmed ParallelSizeUnknown UnknownArguments
deepspeed --num_gpus 8 --num_nodes 2 pretrain_gpt.py --deepspeed --deepspeed_config ds.json --save /ckpt --use-distributed-optimizer
