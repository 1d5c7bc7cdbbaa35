"""The cores and the memory of this machine."""
