"""Calibration data: sources of batches, and the split into examples to fit and held-out ones."""
