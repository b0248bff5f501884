"""What operators do to channels: one file per family, found by the registry on first use."""
