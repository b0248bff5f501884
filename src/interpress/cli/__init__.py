"""The command line. `--help` imports no torch; the heavy modules are imported by the commands."""
