#!/bin/bash
# verdict: can't tell
# reasons: OwnApiUnseen

torchrun --nproc_per_node 8 --nnodes 2 train_own.py --epochs 3
