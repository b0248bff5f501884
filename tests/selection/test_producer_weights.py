"""The weights that produce and carry the channels of a space."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import interpress
from interpress import Analysis
from interpress.selection.profile import Profile, profiles_of


def weights_of(analysis: Analysis) -> dict[str, Tensor]:
    return {n: p.detach().double() for n, p in analysis.study.original.named_parameters()}


def test_filters_are_the_rows_of_the_producer(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    (rows,) = profiles["inner.0"].producers.filters()
    assert torch.equal(rows, weights_of(analysis)["inner.0.weight"].flatten(1))


def test_a_residual_stream_has_two_producers(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    producers = profiles["stem.0"].producers
    weights = weights_of(analysis)
    rows = {"stem.0": weights["stem.0.weight"].flatten(1),
            "back.0": weights["back.0.weight"].flatten(1)}  # fmt: skip
    filters = producers.filters()
    assert sorted(part.shape for part in filters) == sorted(part.shape for part in rows.values())
    for p in (1, 2):
        norms = [part.norm(p, dim=1) for part in rows.values()]
        expected = sum(norm / norm.mean() for norm in norms)
        torch.testing.assert_close(producers.norms(p), expected)


def test_scales_are_those_of_the_batch_norm(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    (scales,) = profiles["inner.0"].producers.scales()
    assert torch.equal(scales[:, 0], weights_of(analysis)["inner.1.weight"])
    assert len(profiles["stem.0"].producers.scales()) == 2
    assert profiles["hidden"].producers.scales() == []


class Stream(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.more, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last((x + self.more(x.relu())).relu())


def test_a_weight_that_reads_the_space_it_produces_counts_by_its_outputs() -> None:
    torch.manual_seed(0)
    model = Stream()
    study = interpress.analyze(model, torch.randn(80, 6), patches=False).study
    (profile,) = profiles_of(study.spaces, study.statistics).values()
    filters = profile.producers.filters()
    assert [tuple(rows.shape) for rows in filters] == [(8, 6), (8, 8)]
    assert torch.equal(filters[1], model.more.weight.detach().double())
