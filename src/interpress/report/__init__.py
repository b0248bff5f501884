"""A result to look at: one self-contained page, a figure, and tables for notebooks."""
