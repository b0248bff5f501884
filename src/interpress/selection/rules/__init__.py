"""The built-in selections. The name of a file is the name of its selection.

`pivoting` (the paper's), `weights` and `patches` are ours. All other files are baselines: `random`,
`l1`, `l2`, `soft`, `fpgm`, `bn_scale`, `thinet`, `hrank`, `pfp`, `sipp` and `cp`. A baseline goes
to `benchmarks/` if it is not a ranking of channels (`peers.py`, which is Torch-Pruning, and
`lowrank.py`), or needs more than calibration measures (`snip.py`).
"""
