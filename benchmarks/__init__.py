"""Timings against peers and against what the machine can do, as ratios in one run."""
