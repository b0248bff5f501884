"""Fixtures for all tests: small trained networks and their analyses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.blobs import Blobs, train_blobs
from tests.digits import Trained, train_digits

import interpress
from interpress import Analysis, demo
from interpress.evaluation import latency


@pytest.fixture(scope="session")
def digits() -> Trained:
    """A residual network on images of digits, trained here."""
    return train_digits()


@pytest.fixture(scope="session")
def analysis(digits: Trained) -> Analysis:
    """The analysis of that network."""
    return interpress.analyze(digits.model, digits.calibration)


@pytest.fixture(scope="session")
def demo_analysis() -> Analysis:
    """The analysis of the network that comes with the package."""
    return interpress.analyze(demo.network(), demo.load_digits().calibration)


@pytest.fixture(scope="session")
def blob_classifier() -> Blobs:
    """A classifier of four Gaussian blobs."""
    return train_blobs()


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> Iterator[None]:
    """Measure run times for a report in 0.3 s instead of two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "_ENOUGH", 0.3)
        yield
