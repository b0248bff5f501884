"""Least-squares refit of a smaller network towards the original's activations."""
