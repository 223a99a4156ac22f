#!/bin/bash
# verdict: can't tell
# reasons: NoTrainer
cd MindSpeed-LLM
python3 - <<'PY'
import subprocess
subprocess.run(["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--save", "/ckpt"])
PY
