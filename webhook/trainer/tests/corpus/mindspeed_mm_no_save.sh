#!/bin/bash
# verdict: can't
# reasons: FrameworkUnconfirmed NoSaveFolder

torchrun --nproc_per_node 8 pretrain_sora.py --mm-data d.json --mm-model m.json --use-distributed-optimizer
