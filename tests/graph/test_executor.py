"""The executor gives the model's outputs, whole or in stretches, and changes nothing it shares."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from interpress.graph.capture import capture
from interpress.graph.executor import Executor, Frame
from interpress.graph.patterns import family
from interpress.graph.program import Program, writes


class Residual(nn.Module):
    """Linear layers with a residual connection; ReLUs write in place on request."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.first(x))
        return self.last(self.relu(h + self.second(h)))


BATCH = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def model_and_program(inplace: bool = False) -> tuple[Residual, Program]:
    torch.manual_seed(0)
    model = Residual(inplace).eval()
    return model, capture(model, torch.randn(2, 6))


def node_of(program: Program, family_name: str, number: int = 0) -> fx.Node:
    return [node for node in program.operators() if family(node) == family_name][number]


def outputs_in(frame: Frame, program: Program) -> list[Tensor]:
    return [frame[node] for node in program.output_nodes()]


@pytest.mark.parametrize("inplace", [False, True])
def test_a_whole_run_equals_the_model(inplace: bool) -> None:
    model, program = model_and_program(inplace)
    assert program.writes_in_place == inplace
    (output,) = Executor(program).run(BATCH)
    assert torch.equal(output, model(BATCH))
    (on_example,) = Executor(program).run()
    assert torch.equal(on_example, model(program.example.args[0]))


def test_before_can_replace_an_argument() -> None:
    model, program = model_and_program()
    last = node_of(program, "aten.linear", 2)

    def zero_input(node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node is last:
            args = (torch.zeros_like(args[0]), *args[1:])
        return args, kwargs

    (output,) = Executor(program).run(BATCH, before=zero_input)
    assert torch.equal(output, model.last.bias.expand(5, 3))


def test_after_sees_every_node_in_order() -> None:
    _, program = model_and_program()
    results: dict[fx.Node, Any] = {}
    (output,) = Executor(program).run(BATCH, after=results.__setitem__)
    assert list(results) == [node for node in program.nodes if node.op != "output"]
    assert results[program.output_nodes()[0]] is output
    assert all(isinstance(result, Tensor) for result in results.values())


def most_values_held(depth: int) -> int:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(6, 6), nn.ReLU())]
    program = capture(nn.Sequential(*layers), BATCH)
    executor = Executor(program)
    frame = executor.frame(BATCH)
    counts = []
    executor.advance(
        frame, program.operators(), after=lambda node, value: counts.append(len(frame.values))
    )
    assert list(frame.values) == program.output_nodes()
    return max(counts)


def test_values_are_released_when_no_later_operator_needs_them() -> None:
    assert most_values_held(depth=20) == most_values_held(depth=2) <= 2


@pytest.mark.parametrize("inplace", [False, True])
def test_two_stretches_equal_one_run(inplace: bool) -> None:
    model, program = model_and_program(inplace)
    executor = Executor(program)
    nodes = list(program.operators())
    for cut in range(1, len(nodes)):
        frame = executor.frame(BATCH)
        executor.advance(frame, nodes[:cut])
        executor.advance(frame, nodes[cut:])
        assert torch.equal(outputs_in(frame, program)[0], model(BATCH))


def test_advance_calls_the_hooks() -> None:
    _, program = model_and_program()
    executor = Executor(program)
    calls: list[tuple[str, fx.Node]] = []

    def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
        calls.append(("before", node))
        return args, kwargs

    nodes = list(program.operators())
    executor.advance(
        executor.frame(BATCH), nodes, before=before, after=lambda n, _: calls.append(("after", n))
    )
    assert calls == [(hook, node) for node in nodes for hook in ("before", "after")]


def test_a_value_already_in_the_frame_is_not_recomputed() -> None:
    model, program = model_and_program()
    first = node_of(program, "aten.linear")
    replacement = torch.randn(5, 8)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("this operator must not run")

    executor = Executor(program, kernels={first: fail})
    with pytest.raises(AssertionError, match="must not run"):
        executor.run(BATCH)
    frame = executor.frame(BATCH)
    frame.values[first] = replacement
    executor.advance(frame, program.operators())
    h = replacement.relu()
    expected = model.last((h + model.second(h)).relu())
    assert torch.equal(outputs_in(frame, program)[0], expected)


@pytest.mark.parametrize("protect", [True, False])
def test_protected_values_are_not_overwritten_in_place(protect: bool) -> None:
    model, program = model_and_program(inplace=True)
    first, relu = node_of(program, "aten.linear"), node_of(program, "aten.relu_")
    assert writes(relu)
    executor = Executor(program)
    shared = model.first(BATCH).detach()
    before = shared.clone()
    frame = executor.frame(BATCH)
    frame.values[first] = shared
    protected = {first} if protect else set()
    executor.advance(frame, program.operators(), protected=protected)
    assert torch.equal(outputs_in(frame, program)[0], model(BATCH))
    assert torch.equal(shared, before) == protect


@pytest.mark.parametrize("inplace", [False, True])
def test_record_and_rerun_reproduce_the_outputs(inplace: bool) -> None:
    model, program = model_and_program(inplace)
    executor = Executor(program)
    recorded = executor.record(BATCH)
    copies = {node: value.clone() for node, value in recorded.background.items()}
    second = node_of(program, "aten.linear", 1)
    frame = executor.rerun(recorded, {second}, lambda node, args, kwargs: (args, kwargs))
    assert torch.equal(outputs_in(frame, program)[0], model(BATCH))

    def halve(node: fx.Node, args: Any, kwargs: Any) -> Any:
        return ((args[0] / 2, *args[1:]) if node is second else args), kwargs

    frame = executor.rerun(recorded, {second}, halve)
    assert torch.equal(outputs_in(frame, program)[0], executor.run(BATCH, before=halve)[0])
    assert all(torch.equal(recorded[node], value) for node, value in copies.items())


def test_rerun_repeats_only_what_depends_on_the_change() -> None:
    _, program = model_and_program()
    executor = Executor(program)
    last = node_of(program, "aten.linear", 2)
    calls: list[fx.Node] = []

    def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
        calls.append(node)
        return args, kwargs

    executor.rerun(executor.record(BATCH), {last}, before)
    assert calls == [last]


class WritesInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.linear(x.mul_(2)) + self.calls


def test_writing_into_inputs_and_buffers_does_not_leave_the_run() -> None:
    model = WritesInput().eval()
    program = capture(model, torch.randn(2, 6))
    assert program.writes_in_place
    batch = BATCH.clone()
    executor = Executor(program)
    outputs = [executor.run(batch)[0] for _ in range(2)]
    assert torch.equal(batch, BATCH)
    assert float(model.calls) == 0
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], model(BATCH.clone()))


def test_set_weight_changes_the_run_and_not_the_model() -> None:
    model, program = model_and_program()
    executor = Executor(program)
    weight = torch.randn(3, 8, dtype=torch.float64)
    stored = executor.set_weight("last.weight", weight)
    assert stored.dtype == torch.float32
    assert executor.weights["last.weight"] is stored
    (output,) = executor.run(BATCH)
    assert not torch.equal(output, model(BATCH))
    with torch.no_grad():
        model.last.weight.copy_(weight)
    assert torch.equal(output, model(BATCH))


def test_weights_may_be_given_by_name() -> None:
    model, program = model_and_program()
    weights = {name: 2 * tensor for name, tensor in program.parameters().items()}
    (output,) = Executor(program, weights=weights).run(BATCH)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    assert torch.equal(output, model(BATCH))


class Casts(nn.Module):
    """Makes and casts tensors with a dtype of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones(3, dtype=torch.float32)
        return self.linear(x).to(torch.float32) + ones * torch.pi


@pytest.mark.parametrize("model", [Residual(), Casts()])
def test_a_run_in_double_precision(model: nn.Module) -> None:
    program = capture(model, torch.randn(2, 6))
    (output,) = Executor(program, dtype=torch.float64).run(BATCH)
    assert output.dtype == torch.float64
    assert next(model.parameters()).dtype == torch.float32
    exact = Residual() if isinstance(model, Residual) else nn.Sequential(nn.Linear(6, 3))
    state = {name.replace("linear", "0"): value for name, value in model.state_dict().items()}
    exact.load_state_dict(state)
    expected = exact.double()(BATCH.double())
    expected = expected if isinstance(model, Residual) else expected + torch.pi
    torch.testing.assert_close(output, expected, rtol=1e-13, atol=1e-13)


class Decides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).argmax(-1)


def test_scores_replace_a_decision_by_what_it_came_from() -> None:
    model = Decides().eval()
    program = capture(model, torch.randn(2, 6))
    executor = Executor(program)
    assert torch.equal(executor.run(BATCH)[0], model(BATCH))
    (scores,) = executor.run(BATCH, scores=True)
    assert torch.equal(scores, model.linear(BATCH))


def test_scores_of_floating_point_outputs_are_the_outputs() -> None:
    model, program = model_and_program()
    assert torch.equal(Executor(program).run(BATCH, scores=True)[0], model(BATCH))


def test_operators_run_in_their_autocast_region() -> None:
    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.full = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                h = self.low(x)
            return self.full(h.float())

    model = Autocast().eval()
    program = capture(model, torch.randn(2, 6))
    dtypes: dict[str, torch.dtype] = {}
    (output,) = Executor(program).run(
        BATCH, after=lambda node, value: dtypes.__setitem__(node.name, value.dtype)
    )
    assert torch.equal(output, model(BATCH))
    assert dtypes[node_of(program, "aten.linear").name] == torch.bfloat16


class _ViewThenWrite(nn.Module):
    """A view is taken before its base is overwritten, and read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        flat = h.view(-1, 6)
        h.mul_(2)
        return self.second(flat)


def test_values_written_through_a_view_are_repeated_as_a_whole() -> None:
    model, x = _ViewThenWrite(), torch.randn(3, 4)
    program = capture(model, x)
    assert program.writes_through_views
    executor = Executor(program)
    recorded = executor.record(x)
    (last,) = [n for n in program.operators() if "linear" in str(n.target)][1:]
    seen: list[Tensor] = []

    def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node is last:
            seen.append(args[0].clone())
        return args, kwargs

    for _ in range(2):  # the record stays as it was
        frame = executor.rerun(recorded, [last], before)
        (output,) = program.output_nodes()
        torch.testing.assert_close(frame[output], model(x))
    torch.testing.assert_close(seen[0], 2 * model.first(x))


def test_a_write_that_nothing_else_reads_is_no_hazard() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    assert not capture(model, torch.randn(3, 4)).writes_through_views
