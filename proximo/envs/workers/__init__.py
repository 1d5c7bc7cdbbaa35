"""Environments in worker processes: started, stepped, replaced and closed."""
