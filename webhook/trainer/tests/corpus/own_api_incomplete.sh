#!/bin/bash
# verdict: can't tell
# reasons: OwnApiUnseen
# files: own_api_incomplete.py

torchrun --nproc_per_node 8 own_api_incomplete.py
