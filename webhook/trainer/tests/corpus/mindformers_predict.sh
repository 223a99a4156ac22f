#!/bin/bash
# verdict: can't tell
# reasons: NoTrainer
# files: pretrain_good.yaml

msrun --worker_num 8 run_mindformer.py --config pretrain_good.yaml --run_mode predict
