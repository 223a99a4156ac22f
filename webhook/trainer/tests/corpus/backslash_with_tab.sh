#!/bin/bash
# verdict: can't tell
# reasons: BlankBehindBackslash UnknownArguments OptimizerUnconfirmed
cd MindSpeed-LLM
python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py --save /ckpt \	  
    $ARGS
