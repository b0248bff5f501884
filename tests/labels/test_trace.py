from __future__ import annotations

import torch
from tests.labels.toys import an_op, labelled

from interpress.labels.labelling import FIXED, Labelling
from interpress.labels.trace import Op, Value, is_value


def test_fresh_labels_are_never_used_twice() -> None:
    trace = an_op().trace
    labels = torch.cat([trace.fresh(3), trace.fresh(2)])
    assert labels.tolist() == [1, 2, 3, 4, 5]
    assert FIXED not in labels
    assert [la.labels.shape for la in trace.fresh_labellings((2, 1, 3))] == [(2, 1, 1), (1, 1, 3)]
    assert trace.size == 11


def test_unite_pairs_labels_and_freezes_those_that_meet_fixed() -> None:
    trace = an_op().trace
    trace.unite(torch.tensor([[1], [2]]), torch.tensor([[1, 3], [FIXED, 4]]), "reason")
    ((a, b),) = trace.united
    assert (a.tolist(), b.tolist()) == ([1, 2], [3, 4])
    ((labels, reason),) = trace.frozen
    assert (labels.tolist(), reason) == ([2], "reason")


def test_freeze_ignores_fixed_labels() -> None:
    trace = an_op().trace
    trace.freeze(torch.tensor([[3, FIXED], [3, 2]]), "reason")
    assert trace.frozen[0][0].tolist() == [2, 3]


def test_an_operator_knows_its_name_and_its_inputs() -> None:
    op = an_op()
    assert (op.family, op.location) == ("aten.relu", "aten.relu")
    op.node.meta["nn_module_stack"] = {"": ("", None), "body": ("body.0", None)}
    assert op.location == "aten.relu at body.0"
    x, y = Value((2,)), Value((3,))
    nested = Op(op.node, {"tensors": [x, y], "dim": 1}, op.trace)
    assert nested.inputs() == [x, y]
    assert (nested["dim"], nested.get("start", 5)) == (1, 5)
    assert is_value(x)
    assert not is_value(torch.ones(2))


def test_channels_leave_out_slabs() -> None:
    op = an_op()
    channels = labelled(op, (4,), 0).labellings[0]
    slab = Labelling(op.trace.fresh(4), slab=True)
    value = Value((4,), (channels, slab))
    assert value.channels() == [channels]
    assert value.carries(torch.tensor([5]))
    assert not value.carries(torch.tensor([9]))
