import copy

import torch
from torch import nn

from interpress.graph.digest import weights_digest


def test_every_value_and_name_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    digest = weights_digest(model)
    assert weights_digest(copy.deepcopy(model)) == digest
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        other = copy.deepcopy(model)
        with torch.no_grad():
            (dict(other.named_parameters()) | dict(other.named_buffers()))[name].add_(1)
        assert weights_digest(other) != digest, f"{name} {tensor.shape}"
    assert weights_digest(nn.ModuleDict({"a": model[0], "b": model[1]})) != digest
