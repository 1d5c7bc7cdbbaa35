"""Benchmarks: many runs from one file, statistics over seeds, reports, comparisons, hyper-parameter search."""
