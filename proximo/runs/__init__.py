"""The life of one run: session, log, console and checkpoints."""
