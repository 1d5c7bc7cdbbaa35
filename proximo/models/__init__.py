"""Trained agents: load, evaluate, record, plot and rate them."""
