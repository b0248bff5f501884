"""How wide every space becomes: one file per allocation in `rules/`."""
