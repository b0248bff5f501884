"""Try to shrink every space on a copy of the model, and freeze the spaces for which this fails.

`find.find_spaces` is the entry point. `shapes` runs smaller copies on tensors without values,
`values` proves them by the projection identity.
"""
