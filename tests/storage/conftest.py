"""A result to save."""

import pytest

from interpress import Analysis, Result


@pytest.fixture(scope="session")
def result(analysis: Analysis) -> Result:
    """The residual digits network at half of its FLOPs."""
    return analysis.compress(flops=0.5)
