"""Where the runs of a benchmark are trained: this machine, Ray or SLURM."""
