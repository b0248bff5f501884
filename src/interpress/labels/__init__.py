"""Label tensors: which channel every element of a tensor belongs to, and how operators move them.

- `labelling`: the `Labelling` of one tensor, and reshapes of its labels.
- `trace`: the records that a rule reads and writes (`Value`, `Op`, `Trace`).
- `relations`: what an operator does to labels without moving data (`align`, `uniform`, `mix`).
- `contraction`: sums of products (`contract`).
- `copies`: what repeating heads does to labels (`repeated`).
- `movement`: what an operator does to labels when it moves data (`view`, `cut`, `join`).

The rules in `interpress.ops` are written with these functions. `interpress.spaces` turns the facts
collected in a `Trace` into channel spaces.
"""
