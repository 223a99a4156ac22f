#!/bin/bash
# verdict: can't
# reasons: TftOff ResumeNeedsHighAvailability
# files: pretrain_good.yaml

export MS_ENABLE_TFT="{UCE:0}"
msrun --worker_num 16 --local_worker_num 8 run_mindformer.py --config pretrain_good.yaml
