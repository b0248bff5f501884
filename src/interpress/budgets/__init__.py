"""What a user can ask for: one file per budget in `rules/`."""
