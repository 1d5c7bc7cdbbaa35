"""Many runs: sets of them, their jobs, statistics, reports and hyper-parameter search."""
