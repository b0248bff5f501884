"""The steps from a model and data to a smaller network, in order."""
