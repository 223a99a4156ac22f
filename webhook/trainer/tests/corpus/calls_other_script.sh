#!/bin/bash
# verdict: can
# reasons: 
# files: inner_train.sh

cd /job/code
bash scripts/inner_train.sh /output 2
