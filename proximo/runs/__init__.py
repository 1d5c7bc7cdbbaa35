"""The life of a run: session, start and resume, callbacks, evaluation, what a program calls."""
