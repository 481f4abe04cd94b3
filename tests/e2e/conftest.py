"""What a shell starts in the background ignores Ctrl-C, and so would the trainings of these tests."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
