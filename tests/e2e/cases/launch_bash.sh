#!/bin/bash
# A launcher in the usual manner: set-up, then the training as a child of the shell.
set -e
export OMP_NUM_THREADS=1
python3 launch_bash.py
