"""Records a training from inside its process, by hooks in torch."""
