"""Fixtures of the linear algebra tests."""

import pytest
from torch import Tensor

from tests.linalg.matrices import MATRICES


@pytest.fixture(params=MATRICES)
def A(request: pytest.FixtureRequest) -> Tensor:
    return MATRICES[request.param]
