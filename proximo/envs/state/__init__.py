"""The state of environments, which checkpoints hold."""
