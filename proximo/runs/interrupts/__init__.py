"""Signals, and what is saved when the process has to end."""
