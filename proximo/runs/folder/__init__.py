"""The run folder: its files, how they are written and read, and the lock that allows one writer."""
