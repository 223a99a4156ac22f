#!/bin/bash
# verdict: can't
# reasons: LauncherStopsJob TftOff ConfigMissing
export MS_ENABLE_TFT='{ARF:0}'
WORKERS=
msrun --worker_num $WORKERS --local_worker_num 8 --master_port 8118 run_mindformer.py --run_mode train
