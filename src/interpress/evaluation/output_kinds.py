"""The kinds of output that can be compared: one class each.

To add a kind:

1. Write a subclass of `OutputKind` here and add it to `KINDS`. It sets `name` and `decides`, and
   overrides `decisions` and `_divergence`. A kind with scores sets `has_scores` and derives from
   `Classification`, whose KL divergence needs only `_log_probabilities`.
2. If its shape tells it apart, let `_guess` in `evaluation/output_meaning.py` recognise it.
3. Add it to the table of `kind=` in `docs/compress.md`, and test it in
   `tests/evaluation/test_output_kinds.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress.linalg.precision import exact_dtype

_VOCABULARY = 8192  # scores per decision from which they are those of a language model
_NUMBERS_OF_TOKENS = 2**20  # of their scores, compared at once on a CPU: 4 MiB a copy
_NUMBERS_AT_ONCE = 2**25  # of an output, compared in double precision: 256 MiB a copy


class OutputKind:
    """How outputs of one kind are turned into decisions and compared.

    The base class compares numbers, as a regression does.
    """

    name: str = "regression"
    decides: bool = False
    """Whether the output is, or gives, a decision."""
    has_scores: bool = False
    """Whether decisions are made from scores, so that a KL divergence is defined."""
    class_dim: int | None = None
    """The dim of the output that a decision is made over; None if every entry stands alone."""

    def decisions(self, output: Tensor) -> Tensor:
        """Return one integer per example (and position)."""
        return output

    def counted(self, output: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return which decisions (or entries) count, in their shape; None if all count.

        `mask` is (examples, positions...). It is ignored unless it has the shape of the output's
        first dims, the dim of the classes left out.
        """
        shape = list(output.shape)
        if self.class_dim is not None:
            del shape[self.class_dim]
        if mask is None or list(mask.shape) != shape[: mask.ndim]:
            return None
        ones = (1,) * (len(shape) - mask.ndim)
        return mask.cpu().bool().reshape(*mask.shape, *ones).expand(shape)

    def silenced(self, output: Tensor, counted: Tensor | None) -> Tensor:
        """Return the output with zeros where it does not count."""
        if counted is None:
            return output
        if self.class_dim is not None:
            counted = counted.unsqueeze(self.class_dim)
        return torch.where(counted.to(output.device), output, torch.zeros_like(output))

    def divergences(
        self, reference: Tensor, other: Tensor, counted: Tensor | None = None
    ) -> Tensor:
        """Return, per example, how far the second output is from the first.

        Examples where nothing counts are left out.
        """
        shape = reference.shape[:-1]
        is_flat = _is_vocabulary(reference) and self.class_dim == -1
        if is_flat:  # position by position, so that copies stay in the cache
            reference, other = (o.reshape(-1, o.shape[-1]) for o in (reference, other))
        parts = []
        for start in range(0, len(reference), step := _at_once(reference)):
            rows = slice(start, start + step)
            parts.append(self._divergence(_exact(reference[rows]), _exact(other[rows])).cpu())
        divergences = torch.cat(parts)
        return example_means(divergences.reshape(shape) if is_flat else divergences, counted)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return (a - b).square()

    def distance(self, reference: Tensor, other: Tensor, mask: Tensor | None = None) -> float:
        """Return the squared difference of the outputs relative to their spread.

        With few examples it is less noisy than a divergence. `mask` says which positions count, as
        for `counted`.
        """
        if mask is not None and self.counted(reference, mask) is not None:
            return relative_distance(self.rows(reference, mask), self.rows(other, mask))
        return relative_distance(self.centred(_exact(reference)), self.centred(_exact(other)))

    def centred(self, output: Tensor) -> Tensor:
        """Return the output without what changes no decision."""
        return output

    def rows(self, output: Tensor, mask: Tensor) -> Tensor:
        """Return the positions that count as rows (positions, entries), centred as for `distance`.

        `mask` has the shape of the first dims of the decisions.
        """
        centred = self.centred(_exact(output))
        last = centred if self.class_dim is None else centred.movedim(self.class_dim, -1)
        return last[mask.to(last.device).bool()].reshape(int(mask.sum()), -1)

    def confidence(self, output: Tensor) -> Tensor | None:
        """Return the probability of each decision, or None if there are no probabilities."""
        return None

    def probabilities(self, output: Tensor) -> Tensor | None:
        """Return (examples, classes) if there is one decision per example, else None."""
        return None

    def classes(self, output: Tensor) -> int | None:
        """Return how many classes the scores distinguish, or None if there are no classes."""
        return None


class Regression(OutputKind):
    """Numbers: compared by their squared difference."""


class Decisions(OutputKind):
    """Integers, such as the result of an argmax: compared for equality."""

    name = "decisions"
    decides = True

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return (a != b).double()


class Classification(OutputKind):
    """Scores along the last dim: the largest one decides."""

    name = "classification"
    decides = has_scores = True
    dim = -1
    class_dim: int | None = -1

    def decisions(self, output: Tensor) -> Tensor:
        """Return the class with the largest score."""
        return output.argmax(self.dim)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        """Return KL(a || b) of the probabilities."""
        p, q = self._log_probabilities(a), self._log_probabilities(b)
        kl = torch.where(p > -1e30, p.exp() * (p - q.clamp(min=-1e30)), 0.0).sum(self.dim)
        return kl.clamp(min=0)  # rounding can make it negative

    def centred(self, output: Tensor) -> Tensor:
        """Subtract the mean score, which changes no probability."""
        return output - output.mean(self.dim, keepdim=True)

    def confidence(self, output: Tensor) -> Tensor | None:
        """Return the probability of the class with the largest score."""
        shape = output.argmax(self.dim).shape
        if _is_vocabulary(output) and self.class_dim == -1:
            output = output.reshape(-1, output.shape[-1])
        parts = [
            self._log_probabilities(_exact(rows)).exp().amax(self.dim).cpu()
            for rows in output.split(_at_once(output))
        ]
        return torch.cat(parts).reshape(shape)

    def probabilities(self, output: Tensor) -> Tensor | None:
        """Return (examples, classes) if there is one decision per example, else None."""
        scores = output.movedim(self.dim, -1) if self.class_dim is not None else output
        decisions = scores.numel() // (scores.shape[-1] if self.class_dim is not None else 1)
        if decisions != len(output):
            return None
        values = self._log_probabilities(output.double().cpu()).exp().movedim(self.dim, -1)
        return values.reshape(len(values), -1)

    def classes(self, output: Tensor) -> int | None:
        """Return the number of scores per decision; 0 if the output has no such dim."""
        return output.shape[self.dim] if output.ndim >= 2 else 0

    def _log_probabilities(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(self.dim)


class Segmentation(Classification):
    """Scores along dim 1, one decision per pixel."""

    name = "segmentation"
    dim = class_dim = 1


class Binary(Classification):
    """A single score: its sign decides."""

    name = "binary"
    class_dim = None

    def decisions(self, output: Tensor) -> Tensor:
        """Return 1 where the score is positive, else 0."""
        return (output > 0).long()

    def centred(self, output: Tensor) -> Tensor:
        """Return the score itself, since its sign decides."""
        return output

    def confidence(self, output: Tensor) -> Tensor | None:
        """Return None: a single score is often not calibrated as a probability."""
        return None

    def classes(self, output: Tensor) -> int | None:
        """Return None: one score decides between two classes."""
        return None

    def _log_probabilities(self, scores: Tensor) -> Tensor:
        return nn.functional.logsigmoid(torch.stack([-scores, scores], -1))


def _exact(output: Tensor) -> Tensor:
    """Return an output in the most precise type of its device.

    For the scores of a language model, single precision is enough: the rounding errors of a
    position are far below the differences between positions.
    """
    if _is_vocabulary(output) and output.dtype is not torch.float64:
        return output.float()
    return output.to(exact_dtype(output.device))


def _is_vocabulary(output: Tensor) -> bool:
    """Return whether an output has so many scores per decision as a language model has."""
    return output.ndim > 1 and output.shape[-1] > _VOCABULARY


def _at_once(output: Tensor) -> int:
    """Return how many examples are compared at once; the scores of a language model are many."""
    numbers = _NUMBERS_OF_TOKENS if _is_vocabulary(output) and output.is_cpu else _NUMBERS_AT_ONCE
    return max(1, numbers // max(output[:1].numel(), 1))


def relative_distance(reference: Tensor, other: Tensor) -> float:
    """Return the squared difference relative to the spread of the rows; 0 if they are all equal."""
    spread = float((reference - reference.mean(0)).square().sum())
    return float((reference - other).square().sum()) / spread if spread > 0 else 0.0


def example_means(values: Tensor, counted: Tensor | None) -> Tensor:
    """Return the mean of every example's values, for the examples where some count."""
    flat = values.reshape(len(values), -1).double()
    if counted is None:
        return flat.mean(1)
    counts = counted.reshape(flat.shape)
    some = counts.any(1)
    return torch.where(counts, flat, 0.0).sum(1)[some] / counts.sum(1)[some]


KINDS: dict[str, OutputKind] = {
    kind.name: kind
    for kind in (Classification(), Segmentation(), Binary(), Regression(), Decisions())
}
"""Every kind by its name, as in `kind="binary"`."""
