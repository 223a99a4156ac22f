#!/bin/bash
# verdict: can
# reasons: TftWithoutComma ResumeNeedsHighAvailability
# files: pretrain_good.yaml

export MS_ENABLE_TFT='{TTP:1 UCE:1}'
export MINDIO_FOR_MINDSPORE=1
msrun --worker_num 16 --local_worker_num 8 run_mindformer.py --config pretrain_good.yaml
