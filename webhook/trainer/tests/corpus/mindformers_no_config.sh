#!/bin/bash
# verdict: can't tell
# reasons: ConfigMissing

bash scripts/msrun_launcher.sh "run_mindformer.py --config configs/absent.yaml --run_mode train"
