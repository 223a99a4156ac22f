#!/bin/bash
# verdict: can't tell
# reasons: NoTrainer

sleep 100000
