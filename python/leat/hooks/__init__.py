"""What records a training from inside its process: patches of torch, and the spans they record."""
