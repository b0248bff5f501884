from __future__ import annotations

import pytest
import torch
from tests.labels.toys import an_op, frozen, labelled, same

from interpress.labels.contraction import Operand, contract
from interpress.labels.labelling import Labelling
from interpress.labels.trace import Value


@pytest.mark.parametrize(
    ("x_letters", "y_letters", "out"),
    [("ni", "oi", "no"), ("bni", "io", "bno"), ("bhqd", "bhkd", "bhqk"), ("ij", "ji", "")],
)
def test_outputs_carry_the_labels_of_their_factors(
    x_letters: str, y_letters: str, out: str
) -> None:
    op = an_op()
    sizes = {letter: 2 + place for place, letter in enumerate(sorted({*x_letters, *y_letters}))}
    x, y = (
        labelled(op, tuple(sizes[letter] for letter in word), *range(len(word)))
        for word in (x_letters, y_letters)
    )
    labellings = contract(op, Operand("x", x, x_letters), Operand("y", y, y_letters), out)
    described = {out[dim]: la.labels.reshape(-1) for la in labellings for dim in la.support}
    assert set(described) == set(out)
    for letter in out:
        source, word = (x, x_letters) if letter in x_letters else (y, y_letters)
        expected = source.labellings[word.index(letter)].labels.reshape(-1)
        assert torch.equal(described[letter], expected)
    shared = set(x_letters) & set(y_letters)
    assert same(op) == {
        pair
        for letter in shared
        for pair in zip(
            x.labellings[x_letters.index(letter)].labels.reshape(-1).tolist(),
            y.labellings[y_letters.index(letter)].labels.reshape(-1).tolist(),
            strict=True,
        )
    }
    assert not frozen(op)
    assert len(op.trace.reads) == len(shared - set(out))


def test_a_sum_over_channels_is_read_where_both_operands_meet() -> None:
    op = an_op()
    x, weight = labelled(op, (5, 4), 1), labelled(op, (3, 4), 0, 1, weight="w")
    contract(op, Operand("input", x, "ni"), Operand("weight", weight, "oi"), "no")
    (read,) = op.trace.reads
    assert [side.argument for side in read.sides] == ["input", "weight"]
    assert [side.dims for side in read.sides] == [(1,), (1,)]
    assert read.sides[0].aligned.tolist() == [x.labellings[0].labels.reshape(-1).tolist()]
    assert read.sides[1].labels.tolist() == weight.labellings[1].labels.reshape(-1).tolist()
    (produced,) = op.trace.produced
    assert produced.reshape(-1).tolist() == weight.labellings[0].labels.reshape(-1).tolist()


def test_a_batch_of_products_is_read_in_blocks() -> None:
    op = an_op()
    channels = Labelling(op.trace.fresh(6).reshape(2, 1, 3))  # (heads, tokens, dims)
    x, y = Value((2, 5, 3), (channels,)), labelled(op, (2, 4, 3), 2)
    contract(op, Operand("query", x, "hqd"), Operand("key", y, "hkd"), "hqk")
    (read,) = op.trace.reads
    assert read.sides[0].aligned.tolist() == channels.labels.reshape(2, 3).tolist()
    assert (
        read.sides[1].aligned.tolist() == y.labellings[0].labels.reshape(1, 3).repeat(2, 1).tolist()
    )


def test_a_dim_of_one_factor_that_is_summed_freezes() -> None:
    op = an_op()
    x, y = labelled(op, (2, 3, 4), 1, 2), labelled(op, (5, 4), 1)
    contract(op, Operand("x", x, "abc"), Operand("y", y, "dc"), "ad")
    assert frozen(op) == set(x.labellings[0].labels.reshape(-1).tolist())


def test_channels_over_two_summed_dims_need_a_twin() -> None:
    op = an_op()
    x = Value((2, 3), (Labelling(op.trace.fresh(6).reshape(2, 3)),))
    contract(op, Operand("x", x, "ij"), Operand("y", labelled(op, (2, 3), 0, 1), "ij"), "")
    assert not op.trace.reads
    assert "along several dims at once" in op.trace.frozen[-1][1]
