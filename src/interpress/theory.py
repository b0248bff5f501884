"""What the paper proves about one hidden layer, evaluated on a real network.

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
    """A network with one hidden layer, as the theory sees it."""

    activations: Tensor
    """(n, m) `Z`: what the last layer reads, on some examples."""
    outputs: Tensor
    """(m, outputs) `U`: the last layer's weights."""
    inputs: int
    """d: how many numbers an example is."""


@dataclass(frozen=True)
class Risk:
    """The lemma and the theorem for one network at one k; outputs add up."""

    k: int
    eps: float
    """`||Z - Z[:, kept] @ T||_2 / ||Z||_2`, measured."""
    T_norm: float
    """`||T||_2`, measured."""
    empirical: float
    """Mean squared change of the outputs on the examples the ID was made from."""
    lemma: float
    """What the lemma says it is at most."""
    test: float | None
    """The same on other examples, where they were given."""
    M: float
    p: float
    """The pseudo-dimension of the theorem."""
    generalization: float
    """What the theorem says the risk is at most; infinite where n <= p makes it say nothing."""
    examples: int

    @property
    def holds(self) -> bool:
        """Whether the lemma's left side is at most its right one, up to rounding."""
        return self.empirical <= self.lemma * (1 + 1e-6) + 1e-28 * self.M

    @property
    def enough(self) -> float:
        """How many examples the theorem would need to bound the risk by M, its trivial value."""
        return _examples_for(self.p, (1 + self.T_norm) ** 2)


def hidden_layer(model: nn.Module, inputs: Tensor) -> HiddenLayer:
    """The activations that a one-hidden-layer network's last linear layer reads.

    The model must hold exactly two `nn.Linear`, run in the order they are registered.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if len(linear) != 2:
        raise ArgumentError(
            f"the theory is about one hidden layer, two nn.Linear in all; this "
            f"{type(model).__name__} has {len(linear)}"
        )
    seen: list[Tensor] = []
    handle = linear[1].register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    mode = model.training
    try:
        model.eval()
        with torch.no_grad():
            model(inputs)
    finally:
        handle.remove()
        model.train(mode)
    return HiddenLayer(seen[0].double(), linear[1].weight.detach().double().T, inputs[0].numel())


def risks(
    layer: HiddenLayer,
    ks: Iterable[int],
    *,
    test: Tensor | None = None,
    delta: float = 0.05,
    zeta: float = 1.0,
) -> list[Risk]:
    """The lemma's two sides and the theorem's bound with k neurons kept, for every k.

    `test` are activations (rows, m) of examples the ID has not seen. Assumptions, as in the paper:
    examples are independent draws of one distribution with compact support, the activation is that
    for which the pseudo-dimension bound holds (ReLU), the last layer has no say in which neurons
    stay. The supremum in `M` is taken over the examples at hand, which makes it an estimate
    from below. `zeta` is a universal constant that the paper does not give; 1 is a guess, and the
    bound grows with its square root. With several outputs, `||u||**2` is summed over them.
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
    found = []
    for k in ks:
        kept = ordering.at_rank(k)
        T, index = kept.T.to(Z), kept.kept.to(Z.device)
        eps = float(torch.linalg.matrix_norm(Z - Z[:, index] @ T, 2)) / size
        norm = float(torch.linalg.matrix_norm(T, 2))
        change = T @ U
        empirical = float((Z @ U - Z[:, index] @ change).square().sum() / n)
        other = None
        if test is not None:
            own = test.to(Z)
            other = float((own @ U - own[:, index] @ change).square().sum() / len(own))
        extra = M * (1 + norm) ** 2 / math.sqrt(n) * _complexity(n, p, delta)
        found.append(
            Risk(k, eps, norm, empirical, eps**2 * weight * size**2 / n, other, M, p,
                 eps**2 * M + extra, n)
        )  # fmt: skip
    return found


def _complexity(n: float, p: float, delta: float) -> float:
    """The bracket of the theorem; infinite where there are too few examples for it to mean any."""
    if n <= p:
        return math.inf
    return math.sqrt(2 * p * math.log(math.e * n / p)) + math.sqrt(math.log(1 / delta) / 2)


def _examples_for(p: float, factor: float) -> float:
    """The n from which `factor * sqrt(2 * p * log(e * n / p) / n)` is at most one."""
    low, high = p, p * 1e12
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        small = factor * math.sqrt(2 * p * math.log(math.e * middle / p) / middle) <= 1
        low, high = (low, middle) if small else (middle, high)
    return high
