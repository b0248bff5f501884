"""Padding and masks: positions that do not count change neither the network nor its agreement."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import DataError, Result, agreement

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings(
    "ignore::interpress.MemorizedWarning",
    "ignore::interpress.RuinedWarning",
    "ignore::interpress.FewExamplesWarning",
)

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "initializer_range": 0.2,
}  # fmt: skip


def causal_lm() -> nn.Module:
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config)


def token_classifier() -> nn.Module:
    return transformers.BertForTokenClassification(transformers.BertConfig(**SIZES, num_labels=5))


def sequence_classifier() -> nn.Module:
    config = transformers.BertConfig(**SIZES, num_labels=5)
    return transformers.BertForSequenceClassification(config)


def texts(count: int = 40) -> list[Tensor]:
    """Return random token ids of 5 to 24 tokens per text."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(5, 25, (count,), generator=generator).tolist()
    return [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in lengths]


def padded(ids: list[Tensor], pad: int = 0, left: bool = False) -> dict[str, Tensor]:
    """Return texts as one batch of the longest length, with an attention mask."""
    side = "left" if left else "right"
    pad_sequence = nn.utils.rnn.pad_sequence
    ones = [torch.ones_like(text) for text in ids]
    return {
        "input_ids": pad_sequence(ids, True, pad, side),
        "attention_mask": pad_sequence(ones, True, 0, side),
    }


def same_weights(first: Result, second: Result, tolerance: float) -> None:
    other = second.model.state_dict()
    for name, tensor in first.model.state_dict().items():
        scale = float(tensor.abs().max())
        assert float((tensor - other[name]).abs().max()) <= tolerance * scale, name


@pytest.mark.parametrize("build", [causal_lm, token_classifier, sequence_classifier])
def test_a_padded_and_an_unpadded_copy_give_the_same_network(build: Any) -> None:
    torch.manual_seed(0)
    model, ids = build().eval(), texts()
    whole = interpress.compress(model, padded(ids), flops=0.7, progress=False)
    singles = [padded([text]) for text in ids]
    single = interpress.compress(model, singles, flops=0.7, progress=False)
    assert single.widths == whole.widths
    assert single.before.flops == whole.before.flops
    same_weights(whole, single, 1e-3)
    first, second = whole.agreement, single.agreement
    assert first is not None
    assert second is not None
    assert (first.kind, first.examples) == (second.kind, second.examples)
    assert first.decisions == second.decisions
    assert abs(float(first) - float(second)) <= 1 / first.decisions + 1e-9


def test_the_agreement_of_two_networks_ignores_padding() -> None:
    torch.manual_seed(0)
    model, other, ids = token_classifier().eval(), token_classifier().eval(), texts()
    counted = agreement(model, other, [padded([text]) for text in ids])
    for batch in (padded(ids), padded(ids, pad=7), list(map(padded, (ids[:9], ids[9:])))):
        result = agreement(model, other, batch)
        assert sum(row.count for row in result.per_class) == sum(map(len, ids))
        assert float(result) == pytest.approx(float(counted), abs=1e-6)
        assert result.divergence == pytest.approx(counted.divergence, rel=1e-4)


def test_batches_of_different_lengths_and_sizes_are_accepted() -> None:
    torch.manual_seed(0)
    model, ids = causal_lm().eval(), sorted(texts(), key=len)
    batches = [padded(ids[start : start + 7]) for start in range(0, len(ids), 7)]
    assert len({batch["input_ids"].shape for batch in batches}) > 3
    result = interpress.compress(model, batches, flops=0.8, progress=False)
    assert result.flops <= 0.8
    assert result.network.proof


def test_a_text_may_have_as_many_classes_as_tokens() -> None:
    """The answer to a question is a position, so texts of other lengths have other classes."""
    torch.manual_seed(0)
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**SIZES)).eval()
    singles = [padded([text]) for text in texts()]
    result = interpress.compress(model, singles, flops=0.8, progress=False)
    assert result.network.proof
    assert result.agreement is not None
    assert (result.agreement.kind, result.agreement.examples) == ("classification", 8)


class PerToken(nn.Module):
    """Embeds tokens and classifies each one by itself, so positions cannot reach each other."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 12)
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, ids: Tensor) -> Tensor:
        return self.layers(self.embedding(ids))


IDS = torch.randint(1, 48, (60, 10), generator=torch.Generator().manual_seed(2))
COUNTS = torch.arange(10) < torch.randint(
    3, 11, (60, 1), generator=torch.Generator().manual_seed(3)
)


def with_garbage(seed: int) -> Tensor:
    """Return the same ids where positions count, and rare ones elsewhere."""
    garbage = torch.randint(
        48, VOCABULARY, IDS.shape, generator=torch.Generator().manual_seed(seed)
    )
    return torch.where(COUNTS, IDS, garbage)


def per_token(garbage: float = 30.0) -> PerToken:
    torch.manual_seed(0)
    model = PerToken().eval()
    model.embedding.weight.data[48:] *= garbage  # such tokens would decide everything
    return model


def compress_masked(data: Any, mask: Any) -> Result:
    return interpress.compress(per_token(), data, mask=mask, flops=0.5, progress=False)


@pytest.mark.parametrize("as_key", [True, False])
def test_excluded_positions_have_no_influence(as_key: bool) -> None:
    results = []
    for seed in (4, 5):
        ids = with_garbage(seed)
        if as_key:
            results.append(compress_masked({"ids": ids, "valid": COUNTS}, "valid"))
        else:
            results.append(compress_masked(ids, lambda batch: batch < 48))
    first, second = results
    assert first.widths == second.widths
    same_weights(first, second, 1e-6)
    assert first.agreement is not None
    assert second.agreement is not None
    assert first.agreement.divergence == pytest.approx(second.agreement.divergence, rel=1e-6)


def test_without_the_mask_they_would_have() -> None:
    masked = compress_masked({"ids": with_garbage(4), "valid": COUNTS}, "valid")
    unmasked = interpress.compress(per_token(), with_garbage(4), flops=0.5, progress=False)
    with pytest.raises(AssertionError):
        same_weights(masked, unmasked, 1e-3)


def test_labels_of_minus_100_exclude_positions_as_a_mask_does() -> None:
    labels = torch.where(COUNTS, IDS, -100)
    labelled = interpress.compress(
        per_token(), {"ids": with_garbage(4), "labels": labels}, flops=0.5, progress=False
    )
    masked = compress_masked({"ids": with_garbage(5), "valid": COUNTS}, "valid")
    assert labelled.widths == masked.widths
    same_weights(labelled, masked, 1e-6)


def test_a_mask_that_excludes_everything_is_refused() -> None:
    data = {"ids": IDS, "valid": torch.zeros_like(COUNTS)}
    with pytest.raises(DataError, match="mask excludes every position"):
        compress_masked(data, "valid")
