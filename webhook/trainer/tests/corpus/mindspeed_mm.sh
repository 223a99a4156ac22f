#!/bin/bash
# verdict: can't tell
# reasons: FrameworkUnconfirmed ExitStatusLost

NPUS_PER_NODE=8
NNODES=1
TP=1
MM_ARGS="
    --mm-data ./examples/internvl2/data.json \
    --mm-model ./examples/internvl2/model.json
"
logfile=$(date +%Y%m%d)_$(date +%H%M%S)
torchrun --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES pretrain_vlm.py $MM_ARGS --use-distributed-optimizer \
    --tensor-model-parallel-size ${TP} --save ./save_dir | tee logs/train_${logfile}.log 2>&1
chmod 440 logs/train_${logfile}.log
find save_dir -type d -exec chmod 750 {} \;
