"""One file per experiment: its jobs, its tables, its plots."""
