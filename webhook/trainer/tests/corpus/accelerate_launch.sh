#!/bin/bash
# verdict: can't tell
# reasons: OwnApiUnseen
accelerate launch --num_processes 16 --num_machines 2 --machine_rank $RANK train_text_to_image.py --output_dir /ckpt
