"""`hrank`: the average rank of feature maps."""

import torch

from interpress import Analysis
from interpress.selection.profile import Profile
from interpress.selection.rules.hrank import hrank


def test_the_maps_of_the_highest_average_rank_come_first(
    analysis: Analysis, profiles: dict[str, Profile]
) -> None:
    profile, model = profiles["inner.0"], analysis.study.original
    fit = torch.cat([e.args[0] for e in analysis.study.require_data().batches("fit", limit=128)])
    with torch.no_grad():
        maps = model.inner(model.stem(fit))  # type: ignore[operator]
    ranks = torch.linalg.matrix_rank(maps).double().mean(0)
    units = hrank(profile).units
    assert torch.equal(ranks[units], ranks.sort(descending=True).values)
