"""From a batch as loaders make it to the inputs of a model's forward."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, DataError
from interpress.data.inputs import (
    LABELS,
    as_example,
    is_list_of_images,
    plain_batch,
    record_inputs,
    required_inputs,
    with_named_mask,
)
from interpress.graph.example import Example

X = torch.arange(60.0).reshape(20, 3)
Y = torch.zeros(20, dtype=torch.long)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, input_ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(input_ids) if mask is None else self.layer(input_ids) * mask


class Cached(nn.Module):
    def forward(self, x: Tensor, use_cache: bool = True) -> Tensor:
        return x


class OpenEnded(nn.Module):
    def forward(self, **inputs: Tensor) -> Tensor:
        return inputs["anything"]


@pytest.mark.parametrize("batch", [X, (X, Y), [X, Y], (X,), X.numpy(), (X.numpy(), Y.numpy())])
def test_the_first_of_a_batch_is_the_input(batch: Any) -> None:
    example = as_example(batch, nn.Linear(3, 2))
    assert len(example.args) == 1
    assert torch.equal(example.args[0], X)
    assert not example.kwargs


@pytest.mark.parametrize("wrap", [dict, UserDict])
def test_dicts_lose_labels_and_what_the_model_does_not_take(wrap: type) -> None:
    batch = wrap({"input_ids": X, "labels": Y, "path": ["a"] * 20, "extra": X})
    assert set(as_example(batch, Named()).kwargs) == {"input_ids"}
    assert set(as_example((batch, Y), Named()).kwargs) == {"input_ids"}
    with pytest.raises(
        DataError, match=r"batch 3 has the keys 'pixels', but Named takes input_ids"
    ):
        as_example({"pixels": X}, Named(), 3)


@pytest.mark.parametrize("label", LABELS)
def test_labels_are_never_passed_to_a_model_that_takes_anything(label: str) -> None:
    example = as_example({"anything": X, label: Y}, OpenEnded())
    assert set(example.kwargs) == {"anything"}


def test_a_model_with_two_required_inputs_gets_both() -> None:
    model = nn.Bilinear(3, 3, 2)
    assert required_inputs(model) == 2
    assert required_inputs(Named()) == 1
    example = as_example((X, X + 1, Y), model)
    assert [torch.equal(a, b) for a, b in zip(example.args, (X, X + 1), strict=True)] == [True] * 2
    with pytest.raises(DataError, match="batch 0 has 1 inputs, but Bilinear takes 2"):
        as_example((X,), model)


@pytest.mark.parametrize("batch", ["a.png", 3, None, ()])
def test_what_is_no_batch_is_refused_by_number_and_type(batch: Any) -> None:
    with pytest.raises(DataError, match=f"batch 2 is a {type(batch).__name__}; give tensors"):
        as_example(batch, nn.Linear(3, 2), 2)


def test_forward_is_recorded_without_running_the_model() -> None:
    model = Named()
    model.layer.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    example = record_inputs(model, lambda m, batch: m(batch["pixels"], mask=None), {"pixels": X})
    assert torch.equal(example.args[0], X)
    assert example.kwargs == {"mask": None}
    with pytest.raises(ArgumentError, match="without calling the model"):
        record_inputs(model, lambda m, batch: batch, X)
    assert not model._forward_pre_hooks


def test_a_language_model_is_asked_for_no_cache_unless_the_user_decides() -> None:
    assert Example((X,)).without_cache(Cached()).kwargs == {"use_cache": False}
    assert Example((X,), {"use_cache": True}).without_cache(Cached()).kwargs == {"use_cache": True}
    assert not Example((X,)).without_cache(Named()).kwargs


def test_arrays_become_tensors_at_any_depth() -> None:
    batch = plain_batch(UserDict({"a": [np.ones(2)], "b": (np.zeros(3), "text")}))
    assert torch.equal(batch["a"][0], torch.ones(2, dtype=torch.float64))
    assert torch.equal(batch["b"][0], torch.zeros(3, dtype=torch.float64))
    assert batch["b"][1] == "text"


class Annotated(nn.Module):
    def forward(self, images: list[Tensor]) -> list[Tensor]:
        return images


class Commented(nn.Module):
    def forward(self, images, targets=None):  # type: ignore[no-untyped-def]
        # type: (List[Tensor], Optional[List[Dict[str, Tensor]]]) -> List[Tensor]
        return images


class CommentedTensor(nn.Module):
    def forward(self, images):  # type: ignore[no-untyped-def]
        # type: (Tensor) -> List[Tensor]
        return [images]


@pytest.mark.parametrize(
    ("model", "is_list"), [(Annotated(), True), (Commented(), True), (CommentedTensor(), False)]
)
def test_a_forward_says_that_it_takes_a_list_of_images(model: nn.Module, is_list: bool) -> None:
    images = [torch.rand(3, 4, 5), torch.rand(3, 6, 5)]
    (found,) = as_example(images, model).args
    assert isinstance(found, list) == is_list
    assert found == images if is_list else torch.equal(found, images[0])


def test_a_list_of_images_has_nothing_but_images() -> None:
    images = (torch.rand(3, 4, 5), torch.rand(3, 6, 5))
    assert is_list_of_images(images)
    assert not is_list_of_images([])
    assert not is_list_of_images(torch.rand(2, 3, 4, 5))
    assert not is_list_of_images([*images, torch.zeros(2)])
    assert not is_list_of_images([image.long() for image in images])


class Masked(nn.Module):
    """Takes tokens, a mask and labels, none of which is required."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None) -> Any:
        """Return the tokens."""
        return input_ids


def test_a_mask_beside_the_tokens_is_named() -> None:
    tokens, mask = torch.arange(6).reshape(2, 3), torch.tensor([[1, 1, 0], [1, 0, 0]])
    labels = torch.tensor([0, 1])
    named = with_named_mask((tokens, mask, labels), Masked())
    assert list(named) == ["input_ids", "attention_mask", "labels"]
    assert as_example(named, Masked()).kwargs["attention_mask"] is mask
    for batch in ((tokens, tokens), (tokens, labels), (tokens,), tokens):
        assert with_named_mask(batch, Masked()) is batch
    assert with_named_mask((tokens, mask), nn.Linear(3, 3))[1] is mask


def test_a_required_input_may_be_called_target() -> None:
    class Pair(nn.Module):
        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return source + target

    batch = {"source": torch.ones(2), "target": torch.ones(2), "labels": torch.ones(2)}
    assert list(as_example(batch, Pair()).kwargs) == ["source", "target"]


def test_a_forward_of_any_number_of_inputs_gets_all() -> None:
    class Sum(nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return inputs[0]

    pair = (torch.ones(2, 3), torch.zeros(2, 3))
    assert as_example(pair, Sum()).args == pair
