#!/bin/bash
# verdict: can't tell
# reasons: ConfigMissing
export MS_ENABLE_TFT='{TTP:1,UCE:1}'
msrun --worker_num=16 --local_worker_num=8 --master_addr=$MASTER_ADDR --node_rank=$NODE_RANK \
    --log_dir=/logs --join=True run_mindformer.py --config /job/pretrain.yaml --run_mode train
