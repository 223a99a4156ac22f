#!/bin/bash
# verdict: can
# reasons: ExitStatusLost WeightsOnly
# 设置环境变量，注意：不要使用 --lora-r
source /usr/local/Ascend/ascend-toolkit/set_env.sh
cd /home/用户/MindSpeed-LLM    # 进入目录
NPUS_PER_NODE=8   # 每个节点的卡数
DISTRIBUTED_ARGS="
    --nproc_per_node $NPUS_PER_NODE \
    --nnodes 2
"
OUTPUT_ARGS="
    --save /ckpt/检查点 \
    --no-save-optim
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $OUTPUT_ARGS \
    --use-distributed-optimizer \
    | tee logs/训练.log
