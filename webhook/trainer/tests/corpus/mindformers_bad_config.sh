#!/bin/bash
# verdict: can't
# reasons: GraphModeOff SinkSizeNotOne NoReplica ResumeNeedsHighAvailability
# files: pretrain_bad.yaml

msrun --worker_num=8 --local_worker_num=8 --master_port=8118 --join=True run_mindformer.py --config pretrain_bad.yaml --run_mode train
