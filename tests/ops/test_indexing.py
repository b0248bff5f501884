from __future__ import annotations

import torch
from tests.ops.between import freezes, linear, shrinks
from torch import nn

from interpress import find_spaces


def test_tokens_may_be_picked() -> None:
    shrinks(linear(lambda _, h: h[:, torch.tensor([0, 2, 2])]), 12)
    shrinks(linear(lambda _, h: h.index_select(1, torch.tensor([1, 0]))), 12)
    picked = torch.zeros(3, 2, 12, dtype=torch.long)
    freezes(linear(lambda _, h: h.gather(1, picked)), "")


def test_channels_may_not() -> None:
    order = torch.randperm(12)
    freezes(linear(lambda _, h: h[..., order]), "selects its channels by index")
    freezes(linear(lambda _, h: h.index_select(-1, order)), "selects its channels by index")


def test_embeddings_make_channels() -> None:
    model = nn.Sequential(nn.Embedding(20, 12), nn.ReLU(), nn.Linear(12, 3))
    spaces = find_spaces(model, torch.randint(0, 20, (4, 5)))
    assert spaces["0"].frozen is None
    assert spaces["0"].producers == ("0.weight",)


def test_an_embedding_keeps_its_vocabulary() -> None:
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 20))
    model[0].weight = model[3].weight  # tied, as in GPT-2
    spaces = find_spaces(model, torch.randint(0, 20, (2, 5)))
    reasons = [space.frozen for space in spaces.frozen if space.size == 20]
    assert any("looks up its rows by number" in str(reason) for reason in reasons)
