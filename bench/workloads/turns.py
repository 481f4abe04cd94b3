"""Takes turns with another process: a workload runs a block of steps only when it is told to.

The bench runs two processes at a time, one block each in turn, some ten milliseconds long. What
else happens on the machine then falls on both alike, and the difference of neighbouring blocks is
what the bench is after.
"""

import json
import os
import socket
import time


def take_turns(path, run_block, one_core=False):
    """Calls run_block(), which returns the ns each step took, whenever the bench says so. `one_core`: both
    sides run on the same core, as they never run at once and no two cores are alike while other
    programs use them."""
    if one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with socket.socket(socket.AF_UNIX) as bench:
        bench.connect(path)
        while bench.recv(1) == b"g":
            cpu = time.process_time_ns()
            times = run_block()
            cpu = time.process_time_ns() - cpu
            bench.sendall(json.dumps({"step_ns": times, "cpu_ns": cpu}).encode() + b"\n")
