"""One training at a time has the GPU: cases may run side by side (matrix.py --jobs), so that one starts
up, which takes longer than its training, while another trains."""

import atexit
import fcntl
import os
import tempfile


def take():
    """Waits until no other case trains; this one then does until it ends."""
    path = os.path.join(tempfile.gettempdir(), f"leat-gpu-turn-{os.getuid()}")
    turn = open(path, "w")  # until the process ends
    fcntl.flock(turn, fcntl.LOCK_EX)
    atexit.register(fcntl.flock, turn, fcntl.LOCK_UN)
