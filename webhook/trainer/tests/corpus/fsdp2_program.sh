#!/bin/bash
# verdict: can't
# reasons: FullySharded NoSaveFolder OptimizerUnconfirmed

torchrun --nproc_per_node 16 --nnodes 1 train_fsdp2.py examples/qwen3.yaml --training.output_dir ./output
