#!/bin/bash
# verdict: can't tell
# reasons: ScriptUnread

f() { f "$@"; }
f 1
