"""Experiments and comparisons with peers; results go to ``benchmarks/results``."""
