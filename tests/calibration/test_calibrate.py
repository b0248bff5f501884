"""One pass over the calibration set: factors, moments, variances and predicted classes."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress import DataError, demo, find_spaces
from interpress.calibration import calibrate as module
from interpress.calibration.calibrate import calibrate
from interpress.evaluation.output_meaning import OutputMeaning, find_meaning
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.normalised import inverse_sizes, normalised_value
from interpress.surgery.interpolations import interpolations


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()


def image_net(groups: int = 1, kernel: int = 3, width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, width, 1), nn.ReLU(), nn.Conv2d(width, 6, kernel, groups=groups),
        nn.BatchNorm2d(6),
    ).eval()  # fmt: skip


X = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(20, 3, 5, 5, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("size", [500, 64])
def test_the_factor_is_that_of_what_the_consumer_reads(size: int) -> None:
    model = mlp()
    spaces = find_spaces(model, X[:4])
    calls: list[int] = []
    statistics = calibrate(
        spaces, [Example.of(batch) for batch in X.split(size)],
        meaning=OutputMeaning(0, "classification"), done=lambda: calls.append(1),
    )  # fmt: skip
    (factor,) = statistics.factors.values()
    with torch.no_grad():
        Z = model[1](model[0](X)).double()
        scores = model(X).double()
    torch.testing.assert_close(factor.G, Z.T @ Z, rtol=1e-5, atol=1e-3)
    assert factor.rows == statistics.examples == 500
    assert len(calls) == -(-500 // size)
    assert statistics.top_classes is not None
    assert torch.equal(statistics.top_classes.classes[:, 0].long(), scores.argmax(1))


def test_patches_are_measured_where_a_convolution_reads_them() -> None:
    """The spatial size allows nine positions per image, so that all of them are taken."""
    model = image_net()
    statistics = calibrate(find_spaces(model, IMAGES[:2]), [Example.of(IMAGES)])
    (moments,) = statistics.moments.values()
    with torch.no_grad():
        patches = nn.functional.unfold(model[1](model[0](IMAGES)), 3)  # (examples, u, positions)
        outputs = model(IMAGES).double()
    rows = patches.movedim(1, -1).flatten(0, 1).double()
    assert sum(moments.rows) == len(rows)
    expected = rows.T @ rows / len(rows)
    torch.testing.assert_close(
        moments.moments(centred=False).double(), expected, rtol=1e-4, atol=1e-4
    )
    (variance,) = statistics.output_variances.values()
    first = outputs[:8].movedim(1, 0).flatten(1)
    assert variance == pytest.approx(float(first.var(1, correction=0).sum()), rel=1e-4)
    without = calibrate(find_spaces(model, IMAGES[:2]), [Example.of(IMAGES)], patches=False)
    assert without.moments == {}
    assert without.output_variances.keys() == statistics.output_variances.keys()


def test_large_patches_are_measured_in_directions_that_keep_the_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGEST_PATCH", 32)
    model = image_net()  # 8 channels x 9 positions = 72 inputs, four directions per channel
    statistics = calibrate(find_spaces(model, IMAGES[:2]), [Example.of(IMAGES)])
    (moments,) = statistics.moments.values()
    assert moments.basis is not None
    assert moments.dual is not None
    assert moments.basis.shape == moments.dual.shape == (8, 9, 4)
    assert moments.grams.shape == (2, 32, 32)
    with torch.no_grad():
        patches = nn.functional.unfold(model[1](model[0](IMAGES)), 3).movedim(1, -1).flatten(0, 1)
        weight = model[2].weight.detach().flatten(2)  # (outputs, 8, 9)
    by_channel = (patches - patches.mean(0)).reshape(-1, 8, 9).movedim(1, 0)  # (channels, rows, 9)
    whole = by_channel @ weight.permute(1, 2, 0)  # what every channel contributes to the outputs
    kept = by_channel @ moments.basis @ (weight.permute(1, 0, 2) @ moments.dual).mT
    best = torch.linalg.svdvals(whole.double())[:, 4:].square().sum()
    assert float((whole - kept).square().sum()) == pytest.approx(float(best), rel=0.05)


def test_columns_of_different_groups_are_orthogonal() -> None:
    model = image_net(groups=2)
    statistics = calibrate(find_spaces(model, IMAGES[:2]), [Example.of(IMAGES)])
    (factor,) = statistics.factors.values()
    assert not bool(factor.G[:4, 4:].any())
    assert bool((factor.G[:4, :4] != 0).all())
    assert statistics.moments == {}  # a grouped convolution is no single regression


@pytest.mark.parametrize(
    ("expected", "patches", "rows"),
    [
        (200, False, 21),
        (500, False, 9),
        (9000, False, 4),
        (None, False, 16),
        (200, True, 21),
        (500, True, 16),
        (1000, True, 9),
        (9000, True, 4),
    ],
)
def test_as_many_rows_are_taken_as_the_channels_need(
    expected: int | None, patches: bool, rows: int
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 512, 1), nn.ReLU(), nn.Conv2d(512, 4, 1)).eval()
    images = torch.randn(50, 3, 8, 8)
    spaces = find_spaces(network, images[:2])
    statistics = calibrate(spaces, [Example.of(images)] * 2, patches=patches, expected=expected)
    assert [factor.rows for factor in statistics.factors.values()] == [100 * rows]


def test_the_dtype_of_the_model_does_not_change_what_is_measured() -> None:
    torch.manual_seed(0)
    sizes = (12, 24, 16, 4)
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    model, x = nn.Sequential(*layers).double(), torch.randn(300, 12, dtype=torch.float64)
    measured = {}
    for dtype in (torch.float64, torch.float32):
        study = interpress.analyze(model.to(dtype), x.to(dtype), progress=False).study
        statistics = study.statistics
        traces = [float(factor.G.trace()) for factor in statistics.factors.values()]
        measured[dtype] = traces, [*statistics.output_variances.values()]
    for exact, rounded in zip(*measured.values(), strict=True):
        assert len(exact) == 2
        assert exact == pytest.approx(rounded, rel=1e-4)


class Logarithm(nn.Module):
    """Takes the logarithm of a hidden layer (`inside`) or of the outputs."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)
        for layer in (self.a, self.b):
            nn.init.constant_(layer.weight, 1.0)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.log(self.a(x))) if self.inside else torch.log(self.b(self.a(x)))


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (False, "output is NaN for 3 examples of calibration batch 1;"),
        (True, "2 of its 5 rows hold NaN or Inf"),  # every other example is in this half
    ],
)
def test_nan_is_refused_with_the_number_of_examples(inside: bool, message: str) -> None:
    model = Logarithm(inside)
    good, bad = torch.rand(10, 6), torch.rand(10, 6)
    bad[:3] = -1
    with pytest.raises(DataError, match=message):
        calibrate(find_spaces(model, good), [Example.of(good), Example.of(bad)])


def test_T_is_optimal_even_if_kept_channels_are_dead_or_repeated() -> None:
    """`T` is then as good as without the superfluous channels."""
    network = mlp()
    with torch.no_grad():
        network[0].bias[2] = -1e3  # dead
        network[0].weight[5], network[0].bias[5] = network[0].weight[4], network[0].bias[4]
    spaces = find_spaces(network, X[:4])
    statistics = calibrate(spaces, [Example.of(X)])
    (space,), (tap,) = spaces.shrinkable, spaces.taps
    Z = network[1](network[0](X)).detach().double()
    for kept in ([2], [2, 4, 5, 7], [0, 1, 4, 5, 8, 9]):
        T = interpolations(spaces, {space.name: torch.tensor(kept)}, statistics.factors)[tap]
        best = torch.linalg.lstsq(Z[:, kept], Z, driver="gelsd").solution
        error, least = ((Z - Z[:, kept] @ M).norm() for M in (T, best))
        assert error <= least * (1 + 1e-6)
        assert torch.equal(T[:, kept], torch.eye(len(kept), dtype=T.dtype))


def test_a_batch_on_which_the_model_does_not_run_is_named() -> None:
    images = demo.load_digits().calibration[:40]
    with pytest.raises(
        DataError, match=r"calibration batch 1 with inputs of shape \(\d+, 1, 5, 8\)"
    ):
        interpress.analyze(demo.network(), [images[:20], images[20:, :, :5]], progress=False)


def test_rows_are_relative_to_the_stream_that_several_layers_add_to() -> None:
    """Attention and MLP of GPT-NeoX add to one sum; the rows of both are divided by its size."""
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = hf.GPTNeoXConfig(
        vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=1,
        num_attention_heads=4, initializer_range=0.2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = hf.GPTNeoXForCausalLM(config).eval()
    tokens = torch.randint(5, 96, (8, 9))
    spaces = interpress.find_spaces(model, tokens[:4], progress=False)
    example = Example((tokens,)).without_cache(model)
    statistics = calibrate(spaces, [example], meaning=find_meaning(model, example))
    values = Executor(spaces.program).record(example)
    checked = 0
    for name, halves in statistics.halves.items():
        (site,) = spaces.taps[name].sites
        stream = normalised_value(site.op.node)
        if stream is None or site.positions.shape[0] > 1:
            continue
        operand = values[site.op.node.args[0]].reshape(72, -1)
        rows = (operand * inverse_sizes(values[stream].reshape(72, -1))).double()
        assert torch.allclose(halves.factor.G, rows.T @ rows, rtol=1e-4, atol=1e-4)
        checked += 1
    assert checked == 2
