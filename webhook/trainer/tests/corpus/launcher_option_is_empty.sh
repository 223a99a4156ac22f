#!/bin/bash
# verdict: can't
# reasons: LauncherStopsJob ParallelSizeUnknown
cd MindSpeed-LLM
NODES=""
python3 -m torch.distributed.run --nproc_per_node 8 --nnodes "$NODES" pretrain_gpt.py --use-distributed-optimizer --save /ckpt
