"""Why spaces are frozen, by family of reasons: what a user can do, and how many FLOPs it concerns.

A reason is the sentence in `ChannelSpace.frozen`. It names an operator or a module, so many layers
have many reasons of one family. `FAMILIES` is the only place that says what can be done about them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Reasons of one kind: a title, what a user can do, and the phrases that such reasons hold."""

    title: str
    remedy: str
    phrases: tuple[str, ...]


OUTPUT = Family(
    "output of the model",
    "nothing to do: outputs keep their shape, and what these layers read can shrink",
    ("it is an output of the model",),
)
FAMILIES = (
    OUTPUT,
    Family(
        "excluded",
        "leave the module out of exclude",
        ("is excluded by the pattern", "it was excluded when the model was analysed"),
    ),
    Family(
        "code with fixed sizes",
        "let the code take sizes from tensors (x.shape[1]) or from attributes of the module",
        ("fails with fewer channels",),
    ),
    Family(
        "sizes that depend on each other",
        "store every size in an attribute of its own, under a name that says what it is",
        ("the code fails if it shrinks together", "it cannot shrink by itself"),
    ),
    Family(
        "not proved",
        "report the module with its code; until then the space stays whole",
        ("its surgery cannot be proved", "^the rule for .* raised"),
    ),
    Family(
        "operator without a rule",
        "add a rule with interpress.extend.rule; see 'Adding an operator'",
        ("has no rule for its channels",),
    ),
    Family(
        "norm over channels",
        "lowrank=True (--lowrank) makes layers around it cheaper; only batch norms can shrink",
        ("couples its channels",),
    ),
    Family(
        "recurrent layer",
        "nothing to do: LSTM, GRU and RNN layers stay whole; the layers around them can shrink",
        ("feeds its channels back",),
    ),
    Family(
        "mixture of experts",
        "ask for a budget that the other layers can meet, or write experts as separate layers",
        ("reads the weights of all experts",),
    ),
    Family(
        "one weight, several uses",
        "give every use a weight of its own: untie shared layers before compressing",
        (
            "the same weight", "also uses the weight", "is read in parts that overlap",
            "share the entry that would absorb", "reads it in another order",
        ),
    ),
    Family(
        "meets values that cannot shrink",
        "register a constant as a buffer; pass an input of the model through a layer first",
        (
            "combines its channels with values", "slides over its channels together with values",
            "convolves an input that cannot shrink", "multiplied by an input of the model",
            "repeats it a fixed number of times",
        ),
    ),
    Family(
        "no weight can make up for it",
        "nothing to do for rotary or normalised queries and keys: whole heads can shrink instead",
        (
            "stands between it and a weight", "cannot absorb T", "makes it from something",
            "adds something to it",
        ),
    ),
    Family(
        "read along several dims at once",
        "flatten these dims and read them with one linear layer",
        ("along several dims at once", "does not line up with what it reads"),
    ),
    Family(
        "unequal pieces",
        "use groups, heads and pieces of equal size",
        ("cannot keep the same share", "its heads share channels"),
    ),
    Family(
        "no layer reads all of it",
        "nothing to do for the dims inside heads; whole heads can shrink instead",
        ("no layer reads all of its channels",),
    ),
    Family(
        "kept by same_widths",
        "leave same_widths out, and save with result.save instead of save_pretrained",
        ("so same_widths keeps",),
    ),
    Family(
        "form of the operator",
        "write it as the reason says: with a plain parameter, a batch dim, or two operands",
        (
            "computes its grouped weight", "has an input without a batch dim",
            "is an einsum of three or more", "reinterprets its bytes", "by a tensor of counts",
        ),
    ),
    Family(
        "vocabulary",
        "nothing to do: tokens keep their numbers; a smaller vocabulary needs another tokenizer",
        ("looks up its rows by number",),
    ),
    Family(
        "position has a meaning",
        "apply the operator to a dim without channels, or to the model's outputs after its forward",
        (
            "by its index", "by index", "by position", "as indices", "as sampling positions",
            "takes every n-th", "by a fixed number", "takes windows of its channels",
            "pads its channels", "sorts its channels",
        ),
    ),
    Family(
        "result needs all channels",
        "nothing to do for a softmax, sum or RMS norm: what these layers read can shrink",
        ("mixes its channels",),
    ),
    Family(
        "nothing to remove",
        "nothing to do: these channels cannot be removed one by one, or no layer reads them",
        ("no weight reads it", "are tied to each other"),
    ),
)  # fmt: skip

OTHER = Family("other", "the reason of each space says what stands in the way", ())
NO_SPACE = Family(
    "no channels",
    "nothing to do: the sizes of these operators, such as products of two activations, follow no "
    "channels",
    (),
)
"""Of FLOPs that depend on no space at all."""


def family_of(reason: str) -> Family:
    """Return the family of a reason; `OTHER` for the words of an operator rule of a user's own."""
    for family in FAMILIES:
        if any(re.search(phrase, reason) for phrase in family.phrases):
            return family
    return OTHER


@dataclass(frozen=True)
class FrozenShare:
    """The frozen spaces of one family of reasons."""

    family: str
    remedy: str
    spaces: tuple[str, ...]
    reason: str
    """The reason of the first of these spaces, or the family's title if there is none."""
    flops: float
    """The share of all FLOPs that these spaces keep from shrinking, from 0 to 1. An operator counts
    if no space it depends on can shrink; it is divided between the families of its spaces."""


def frozen_shares(
    reasons: Sequence[tuple[str, str | None]], fixed_flops: Sequence[tuple[float, frozenset[int]]]
) -> tuple[FrozenShare, ...]:
    """Return one record per family, the largest share first; the shares add up to what is fixed.

    `reasons` holds the name and the reason of every space. `fixed_flops` holds, for operators that
    cannot shrink, their share of all FLOPs and the spaces that they depend on.
    """
    families = {i: family_of(reason) for i, (_, reason) in enumerate(reasons) if reason is not None}
    flops = dict.fromkeys(families.values(), 0.0)
    for share, spaces in fixed_flops:
        concerned = {families[index] for index in spaces if index in families} or {NO_SPACE}
        for family in concerned:
            flops[family] = flops.get(family, 0.0) + share / len(concerned)
    records = []
    for family in flops:
        members = [reasons[index] for index, other in families.items() if other is family]
        names = tuple(name for name, _ in members)
        why = str(members[0][1]) if members else family.title
        records.append(FrozenShare(family.title, family.remedy, names, why, flops[family]))
    return tuple(sorted(records, key=lambda record: -record.flops))
