"""Surgery: build a smaller network from kept channels and `T`, and prove that it is right.

`cut.Cut` checks what is kept and computes the smaller weights. `weights` writes them into a copy of
the model, `attributes` and `size_attributes` update the sizes that modules store, and
`projection_identity` compares the copy with the original. `shrink.shrink` runs all of these.
"""
