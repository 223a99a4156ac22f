#!/bin/bash
# verdict: can't tell
# reasons: ScriptMissing ExitStatusLost

cd /job/code
bash scripts/train_start.sh 2>&1 | tee /job/log
