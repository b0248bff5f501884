"""The built-in selections. The name of a file is the name of its selection.

`pivoting` (the paper's), `weights` and `patches` are ours. All other files are baselines: `random`,
`l1`, `l2`, `soft`, `fpgm`, `bn_scale`, `thinet`, `hrank` and `pfp`. A baseline that is not a
ranking of channels goes to `benchmarks/`: `peers.py` (Torch-Pruning), `lowrank.py`.
"""
