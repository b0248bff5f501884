"""Low rank as a second kind of cut: which layers can become two, and at which rank."""
