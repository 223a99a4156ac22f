#!/bin/bash
# verdict: can't tell
# reasons: ParallelSizeUnknown
cd MindSpeed-LLM
torchrun --nproc_per_node 8 --nnodes $VC_WORKER_NUM --master_addr $RANK0_SERVICE_HOST pretrain_gpt.py --use-distributed-optimizer --save /ckpt
