"""`--compile`: functions of tensors compiled ahead of time or just in time."""
