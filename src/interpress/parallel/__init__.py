"""Several processes that work on one call together."""
