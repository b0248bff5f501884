"""The product identity: check that two thin layers do what one layer of that rank would do.

The output of the network with thin layers must equal the output of the same network before any
layer became two, in which the weight of every such layer is the product `A @ B`. The identity holds
for all weights and all inputs, so two examples are enough to check it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor, nn

from interpress.graph.example import Example
from interpress.graph.global_settings import default_dtype
from interpress.linalg.low_rank import Factors
from interpress.linalg.precision import exact_dtype
from interpress.spaces.spaces import Spaces
from interpress.surgery.output_difference import difference
from interpress.surgery.projection_identity import (
    Proof,
    comparable_outputs,
    fixed_seed,
    in_dtype,
    own_tolerance,
    tolerance,
    two_examples,
)
from interpress.surgery.thin_layers import multiplied_copy

_CASTS = 1e-2
"""Difference allowed in a model that casts to single precision itself, which a deep network
amplifies. Mistakes cause differences near 1."""


def prove_products(
    spaces: Spaces, whole: nn.Module, thin: nn.Module, factors: Mapping[str, Factors]
) -> Proof:
    """Compare a network with thin layers to the same one with products, in double precision.

    `whole` is the network before its layers became two.
    """
    inputs = two_examples(spaces.program)
    dtype = exact_dtype(spaces.program.device)
    try:
        with default_dtype.set_to(dtype):
            exact_inputs = inputs.map(lambda tensor: in_dtype(tensor, dtype))
            product = multiplied_copy(copy.deepcopy(whole).to(dtype), factors)
            expected = _outputs(spaces, product, exact_inputs)
            outputs = _outputs(spaces, copy.deepcopy(thin).to(dtype), exact_inputs)
        allowed = max(tolerance(spaces, dtype), _CASTS if spaces.program.casts else 0.0)
    except (RuntimeError, TypeError):  # the model's code runs only in its own precision
        expected = _outputs(spaces, multiplied_copy(whole, factors), inputs)
        outputs = _outputs(spaces, thin, inputs)
        allowed = own_tolerance(spaces, outputs)
    return Proof(difference(outputs, expected), allowed)


def _outputs(spaces: Spaces, network: nn.Module, inputs: Example) -> list[Tensor]:
    with fixed_seed():
        return comparable_outputs(spaces, network, inputs)
