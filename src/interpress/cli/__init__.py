"""The command line. `--help` imports `app` alone; what is heavy waits until it is used."""
