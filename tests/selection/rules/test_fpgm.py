"""`fpgm`: filters near the geometric median are redundant."""

import torch

from interpress.selection.profile import Profile
from interpress.selection.rules.fpgm import fpgm


def test_the_filters_in_the_middle_are_dropped_first(profiles: dict[str, Profile]) -> None:
    (rows,) = profiles["inner.0"].producers.filters()
    distances = torch.stack([(rows - row).norm(dim=1).sum() for row in rows])
    units = fpgm(profiles["inner.0"]).units
    torch.testing.assert_close(distances[units], distances.sort(descending=True).values)
