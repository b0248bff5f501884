"""The built-in selections. The name of a file is the name of its selection."""
