#!/bin/bash
# verdict: can't tell
# reasons: OwnApiUnseen
mpirun -np 16 --hostfile /job/hosts -x LD_LIBRARY_PATH python train.py --config conf.yaml
