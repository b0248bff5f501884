"""The terms that a page uses, each with a definition for readers who are new to them."""

from __future__ import annotations

from interpress.report.markup import attribute, escape, section

TERMS = {
    "agreement": (
        "Agreement",
        "The fraction of decisions on which the smaller network and the original are the same: one "
        "decision per example, token or pixel. It needs no labels. Accuracy can fall by at most "
        "one minus agreement.",
    ),
    "interval": (
        "95 % interval",
        "Where the agreement on more data of the same kind would lie: the method that gives the "
        "interval is right for 95 of 100 data sets. Few examples give a wide interval. Wilson's "
        "score interval; an example counts once, however many decisions it holds.",
    ),
    "held-out": (
        "Held-out examples",
        "One in five of the calibration examples, or of the examples of a distillation. No weight "
        "is fitted to them, but they choose between candidate networks, or between the weights of "
        "a distillation, so agreement on them can be too optimistic.",
    ),
    "calibration": (
        "Calibration examples",
        "Unlabelled examples that the network was run on to see which channels repeat others.",
    ),
    "evaluation": (
        "Evaluation data",
        "Data that are given only to judge the smaller network. None of them should be among the "
        "calibration examples, which it was made from.",
    ),
    "divergence": (
        "KL divergence",
        "How far the predicted probabilities are apart, in nats, averaged over examples; 0 is "
        "equal. It also sees changes that flip no decision.",
    ),
    "output-error": (
        "Output error",
        "Root-mean-square difference of the outputs, relative to the standard deviation of the "
        "original's outputs: 0 is equal, and 1 is what always predicting the mean gives.",
    ),
    "perplexity": (
        "Perplexity",
        "How uncertain a language model is about the next token of real text: as uncertain as "
        "between that many equally likely tokens. Lower is better.",
    ),
    "flops": (
        "FLOPs",
        "Floating-point operations of one example: two for every multiply-add of linear layers, "
        "convolutions, matrix products and attention. Other operators are not counted.",
    ),
    "parameters": ("Parameters", "The trained numbers of the network."),
    "memory": (
        "Memory of a run",
        "The weights, and the most bytes of tensors that exist at once during a run. It is "
        "measured operator by operator; working memory inside an operator is not seen.",
    ),
    "run-time": (
        "Run time",
        "Both networks run in turn on the same batch, many times; the median of the ratios counts. "
        "The quartiles say how much the ratio varies here. Other devices have other ratios.",
    ),
    "space": (
        "Channel space",
        "A set of channels that occur in the same tensors. A channel that is removed is removed "
        "from all of them, so a space shrinks as a whole.",
    ),
    "width": ("Width", "The number of channels (or attention heads) that a space has."),
    "frozen": (
        "Frozen",
        "A space that cannot lose channels. The reason is given; nothing is guessed.",
    ),
    "error": (
        "Error of a space",
        "How well the kept channels reproduce the removed ones where they are read: the spectral "
        "norm of the difference, relative to that of the activations. The layers that read them "
        "are re-solved afterwards, so the outputs usually change less than this.",
    ),
    "bound": (
        "Over SVD",
        "The error relative to the smallest error that any approximation of the same width can "
        "have (from a singular value decomposition); 1 is the best possible.",
    ),
    "refit": (
        "Refit",
        "Solving the layers of the smaller network again by least squares, so that each gives the "
        "outputs that the original layer gave. A layer keeps its old weights if the new ones are "
        "not better on rows that were not fitted, and all do if held-out examples get worse.",
    ),
    "identity": (
        "Projection identity",
        "A check of the surgery: the smaller network must give the outputs of the original in "
        "which every removed channel is replaced by its reconstruction from the kept ones. It is "
        "checked in double precision, unless the model computes in another one. The number is the "
        "relative difference; as much as rounding explains is allowed.",
    ),
    "product": (
        "Product identity",
        "A check of layers that became two thin ones: in double precision, they must give the "
        "outputs of one layer whose weight is the product of theirs.",
    ),
    "fingerprint": (
        "SHA-256",
        "A hash: equal hashes mean equal contents. Of a network, over the names, types and values "
        "of all tensors; of the data, over every value of every batch.",
    ),
    "budget": ("Budget", "What was asked for, such as flops=0.5: keep half of the FLOPs."),
    "low-rank": (
        "Low rank",
        "A layer became two thinner ones, with fewer values (the rank) between them.",
    ),
}
"""By key: the term, and what it means."""


def term(key: str, text: str = "") -> str:
    """Return a term as a link to the glossary; the definition also shows on hover."""
    title, meaning = TERMS[key]
    words = escape(text or title[0].lower() + title[1:] if text or title[1:2].islower() else title)
    return f'<a class="term" href="#term-{key}" title="{attribute(meaning)}">{words}</a>'


def glossary(body: str) -> str:
    """Return a section with the terms that some HTML uses, in alphabetical order."""
    used = {key: entry for key, entry in TERMS.items() if f'href="#term-{key}"' in body}
    rows = "".join(
        f'<dt id="term-{key}">{escape(title)}</dt><dd>{escape(meaning)}</dd>'
        for key, (title, meaning) in sorted(used.items(), key=lambda entry: entry[1][0].lower())
    )
    return section("glossary", "Glossary", f"<dl>{rows}</dl>")
