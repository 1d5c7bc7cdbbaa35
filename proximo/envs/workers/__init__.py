"""Environments in worker processes, which are started, stepped, replaced and closed."""
