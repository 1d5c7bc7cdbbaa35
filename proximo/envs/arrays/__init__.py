"""Observations, actions and masks of N environments as arrays of N rows, and running statistics of rows."""
