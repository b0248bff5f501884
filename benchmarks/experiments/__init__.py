"""The experiments, one file each: jobs, tables and plots."""
