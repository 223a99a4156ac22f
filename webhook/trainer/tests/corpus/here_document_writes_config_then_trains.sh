#!/bin/bash
# verdict: can
# reasons:
cd MindSpeed-LLM
python3 - "$HOME" <<PY
import json, sys
json.dump({"home": sys.argv[1]}, open("/tmp/cfg.json", "w"))  # --lora-r 8
PY
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt
