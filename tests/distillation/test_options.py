import math

import pytest

from interpress import ArgumentError
from interpress.distillation.options import MINUTES, DistillOptions, Limit


@pytest.mark.parametrize(
    "wrong",
    [
        {"minutes": 0}, {"minutes": -1.0}, {"minutes": math.nan}, {"minutes": "2"},
        {"steps": 0}, {"steps": 1.5}, {"steps": True},
        {"augment": 3}, {"memory": 0}, {"memory": math.inf},
    ],
)  # fmt: skip
def test_wrong_options_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        DistillOptions(**wrong)  # type: ignore[arg-type]


def test_distill_is_true_or_a_number_of_minutes() -> None:
    assert DistillOptions.from_argument(False) is None
    assert DistillOptions.from_argument(True) == DistillOptions()
    assert DistillOptions.from_argument(0.5) == DistillOptions(minutes=0.5)
    for wrong in (0, -1, "yes", math.nan):
        with pytest.raises(ArgumentError, match="distill="):
            DistillOptions.from_argument(wrong)  # type: ignore[arg-type]


def test_time_limits_training_unless_steps_are_given() -> None:
    assert DistillOptions().limit == Limit(60 * MINUTES, None)
    assert DistillOptions(steps=10).limit == Limit(None, 10)
    assert DistillOptions(minutes=1, steps=10).limit == Limit(60, 10)


def test_the_first_limit_that_is_reached_counts() -> None:
    limit = Limit(100.0, 10)
    assert limit.part(0.0, 0) == 0.0
    assert limit.part(50.0, 1) == 0.5
    assert limit.part(5.0, 9) == 0.9
    assert limit.part(500.0, 1) == 1.0
