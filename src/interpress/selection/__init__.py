"""In which order the channels of a space are kept: one file per selection in `rules/`."""
