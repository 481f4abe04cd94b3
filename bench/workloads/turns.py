"""Takes turns with another process: runs a block of steps only on request.

The bench runs two processes, one block each in turn, some ten milliseconds long. Other load on the
machine then affects both alike, and the bench measures the difference of neighbouring blocks.
"""

import json
import os
import socket
import time


def take_turns(path, run_block, one_core=False):
    """Calls run_block(), which returns the ns of each step, on each request of the bench.
    `one_core`: both processes use the same core, since they never run at once and cores differ
    under other load."""
    if one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with socket.socket(socket.AF_UNIX) as bench:
        bench.connect(path)
        while bench.recv(1) == b"g":
            cpu = time.process_time_ns()
            times = run_block()
            cpu = time.process_time_ns() - cpu
            bench.sendall(json.dumps({"step_ns": times, "cpu_ns": cpu}).encode() + b"\n")
