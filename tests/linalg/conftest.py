"""Fixtures of the linear algebra tests."""

import pytest
from tests.linalg.matrices import MATRICES
from torch import Tensor


@pytest.fixture(params=MATRICES)
def A(request: pytest.FixtureRequest) -> Tensor:
    return MATRICES[request.param]
