#!/bin/bash
# verdict: can
# reasons: ResumeNeedsHighAvailability
# files: pretrain_good.yaml

cd /job/code
bash scripts/msrun_launcher.sh "run_mindformer.py --config configs/pretrain_good.yaml --use_parallel True --run_mode train" 16 8
