from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress import find_spaces


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_freeze_and_say_so(kind: type[nn.Module]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rnn = nn.Linear(4, 6), kind(6, 5, num_layers=2, batch_first=True)
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.b(torch.relu(self.a(self.rnn(self.first(x))[0])))

    spaces = find_spaces(Net(), torch.randn(2, 3, 4))
    assert "(recurrent)" in str(spaces["first"].frozen)
    assert any("rnn" in space.name and "(recurrent)" in str(space.frozen) for space in spaces)
    assert spaces["a"].frozen is None
