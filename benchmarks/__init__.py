"""Experiments, comparisons with other tools, and the pages that show their results."""
