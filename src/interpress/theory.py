"""The bounds that the paper proves for one hidden layer, evaluated on a real network.

For `h(x) = u.T @ g(W.T @ x)` and an interpolative decomposition of the hidden activations
`Z = g(W.T @ X)` (n rows) with `||Z - Z[:, kept] @ T||_2 <= eps * ||Z||_2`, the compressed network
is `u.T @ T.T @ g(W[:, kept].T @ x)`. The paper (Chee, Renz, Damle, De Sa, NeurIPS 2022) shows

    empirical risk  <=  eps**2 * ||u||**2 * ||Z||_2**2 / n                         (its lemma)
    risk  <=  empirical risk + M * (1 + ||T||)**2 / sqrt(n)
              * (sqrt(2 * p * log(e * n / p)) + sqrt(log(1 / delta) / 2))          (its theorem)

with probability 1 - delta, `M = sup ||u||**2 * ||g(W.T @ x)||**2`, `p = zeta * d * m * log(d * m)`
(d inputs, m hidden neurons). Risk is the mean squared difference to the original network's output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interpress.errors import ArgumentError
from interpress.linalg import column_ordering


@dataclass(frozen=True)
class HiddenLayer:
    """A network with one hidden layer, in the notation of the theory."""

    activations: Tensor
    """(n, m) `Z`: the inputs of the last layer on n examples."""
    outputs: Tensor
    """(m, outputs) `U`: the last layer's weights."""
    inputs: int
    """d: how many numbers one example has."""


@dataclass(frozen=True)
class Risk:
    """Both sides of the lemma and the bound of the theorem with k neurons kept.

    With several outputs, the squared errors are summed over them.
    """

    k: int
    eps: float
    """`||Z - Z[:, kept] @ T||_2 / ||Z||_2`, measured."""
    T_norm: float
    """`||T||_2`, measured."""
    empirical: float
    """Mean squared change of the outputs on the examples that the ID was computed from."""
    lemma: float
    """The lemma's upper bound of `empirical`."""
    test: float | None
    """The same on other examples, if they were given."""
    M: float
    p: float
    """The pseudo-dimension of the theorem."""
    generalization: float
    """The theorem's upper bound of the risk; infinite if n <= p, where it does not apply."""
    examples: int

    @property
    def holds(self) -> bool:
        """Whether `empirical` is at most `lemma`, up to rounding."""
        return self.empirical <= self.lemma * (1 + 1e-6) + 1e-28 * self.M

    @property
    def enough(self) -> float:
        """How many examples the theorem needs to bound the risk by M, the trivial bound."""
        return _examples_for(self.p, (1 + self.T_norm) ** 2)


def hidden_layer(model: nn.Module, inputs: Tensor) -> HiddenLayer:
    """Return the activations that the last linear layer of a one-hidden-layer network reads.

    The model must have exactly two `nn.Linear` modules, which run in the order of registration.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if len(linear) != 2:
        raise ArgumentError(
            f"this {type(model).__name__} has {len(linear)} nn.Linear modules, but the theory is "
            "about one hidden layer; pass a model with exactly two"
        )
    inputs_of_last: list[Tensor] = []
    handle = linear[1].register_forward_pre_hook(
        lambda module, args: inputs_of_last.append(args[0].detach())
    )
    mode = model.training
    try:
        model.eval()
        with torch.no_grad():
            model(inputs)
    finally:
        handle.remove()
        model.train(mode)
    return HiddenLayer(
        inputs_of_last[0].double(), linear[1].weight.detach().double().T, inputs[0].numel()
    )


def risks(
    layer: HiddenLayer,
    ks: Iterable[int],
    *,
    test: Tensor | None = None,
    delta: float = 0.05,
    zeta: float = 1.0,
) -> list[Risk]:
    """Return both sides of the lemma and the bound of the theorem, for every k.

    `test` holds activations (rows, m) of examples that the ID has not seen. Assumptions, as in the
    paper: the examples are independent draws from one distribution with compact support; the
    activation function is one for which the pseudo-dimension bound holds (ReLU); the selection of
    neurons does not depend on the last layer. The supremum in `M` is taken over the given examples,
    so it is an estimate from below. `zeta` is a universal constant that the paper does not give; 1
    is a guess, and the bound grows with its square root. With several outputs, `||u||**2` is summed
    over them.
    """
    Z, U = layer.activations, layer.outputs
    n, m = Z.shape
    if not 0 < delta < 1 or not zeta > 0:
        raise ArgumentError(f"delta={delta!r}, zeta={zeta!r}; give 0 < delta < 1 and zeta > 0")
    ordering = column_ordering(Z)
    size = ordering.spectral_norm
    weight = float(U.square().sum())
    rows = Z if test is None else torch.cat([Z, test.to(Z)])
    M = weight * float(rows.square().sum(1).max())
    p = zeta * layer.inputs * m * math.log(layer.inputs * m)
    results = []
    for k in ks:
        kept = ordering.at_rank(k)
        T, index = kept.T.to(Z), kept.kept.to(Z.device)
        eps = float(torch.linalg.matrix_norm(Z - Z[:, index] @ T, 2)) / size
        norm = float(torch.linalg.matrix_norm(T, 2))
        change = T @ U
        empirical = float((Z @ U - Z[:, index] @ change).square().sum() / n)
        test_risk = None
        if test is not None:
            X = test.to(Z)
            test_risk = float((X @ U - X[:, index] @ change).square().sum() / len(X))
        extra = M * (1 + norm) ** 2 / math.sqrt(n) * _complexity(n, p, delta)
        results.append(
            Risk(k, eps, norm, empirical, eps**2 * weight * size**2 / n, test_risk, M, p,
                 eps**2 * M + extra, n)
        )  # fmt: skip
    return results


def _complexity(n: float, p: float, delta: float) -> float:
    """Return the bracket of the theorem; infinite if there are too few examples."""
    if n <= p:
        return math.inf
    return math.sqrt(2 * p * math.log(math.e * n / p)) + math.sqrt(math.log(1 / delta) / 2)


def _examples_for(p: float, factor: float) -> float:
    """Return the n from which `factor * sqrt(2 * p * log(e * n / p) / n)` is at most one."""
    low, high = p, p * 1e12
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        small = factor * math.sqrt(2 * p * math.log(math.e * middle / p) / middle) <= 1
        low, high = (low, middle) if small else (middle, high)
    return high
