"""Models of transformers: which widths their configs can describe, and how to write them."""
