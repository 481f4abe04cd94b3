"""Which lines of the user's code take the time: what the line sampler asks of Python."""
