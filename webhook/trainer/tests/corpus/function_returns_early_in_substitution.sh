#!/bin/bash
# verdict: can't tell
# reasons: UnknownArguments
cd MindSpeed-LLM
save_args() {
    [ -n "$DRY_RUN" ] && return
    echo "--save /ckpt"
}
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer $(save_args)
