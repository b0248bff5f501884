"""Readers of the data sets, one file each, in the formats in which they are published."""
