"""Real data, read from the files people have them in."""
