#!/bin/bash
# verdict: can't tell
# reasons: ScriptMissing

cd /job/code;
chmod +x scripts/train_start.sh;
bash scripts/train_start.sh
