"""The line profiler: which lines of the user's code take the time of making batches."""
