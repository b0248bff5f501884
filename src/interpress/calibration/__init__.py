"""One pass of the original network over the calibration set, and the statistics it leaves."""
