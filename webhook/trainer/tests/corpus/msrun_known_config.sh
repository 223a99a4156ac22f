#!/bin/bash
# verdict: can
# reasons: ResumeNeedsHighAvailability
# files: pretrain_good.yaml
source /usr/local/Ascend/ascend-toolkit/set_env.sh
export MS_ENABLE_TFT='{TTP:1,UCE:1}'
cd /workspace/mindformers
msrun --worker_num=16 --local_worker_num=8 --join=True \
    run_mindformer.py --config pretrain_good.yaml --run_mode train --use_parallel True
