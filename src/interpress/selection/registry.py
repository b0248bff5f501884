"""The table of selections.

A selection ranks the channels of one space, most important first. Everything after it (`T`,
widths, surgery, refit) is shared. To add one, write a file in `rules/` with one function:

    @selection("random")
    def random(profile: Profile) -> Ranking: ...
"""

from __future__ import annotations

from collections.abc import Callable

from interpress.registry import Registry
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking

Selection = Callable[[Profile], Ranking]
SELECTIONS: Registry[Selection] = Registry("selection", "interpress.selection.rules")
selection = SELECTIONS.register
