"""Networks that come as files: how each kind of file is read and written."""
