#!/bin/bash
# verdict: can
# reasons: 
# files: own_api.py

torchrun --nproc_per_node 8 --nnodes 2 own_api.py --epochs 3
