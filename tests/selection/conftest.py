"""The profiles of the residual digits network."""

from __future__ import annotations

import pytest

from interpress import Analysis
from interpress.selection.activations import Activations
from interpress.selection.profile import Profile, profiles_of


@pytest.fixture(scope="session")
def profiles(analysis: Analysis) -> dict[str, Profile]:
    """The profile of every space: `stem.0` is a residual stream, `inner.0` has a batch norm."""
    study = analysis.study
    activations = Activations(study)
    return profiles_of(study.spaces, study.statistics, activations.at, study.seed)
