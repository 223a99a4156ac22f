#!/bin/bash
# verdict: can't tell
# reasons: ScriptMissing
# files: inner_train.sh
sed -i 's/--bf16/--lora-r 8/' inner_train.sh
bash inner_train.sh
