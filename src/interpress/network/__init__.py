"""From a plan to a finished network: cut, prove, refit, and keep whichever is better."""
