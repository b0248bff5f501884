"""Spaces are tried in every way in which users call the model."""

from __future__ import annotations

import pytest
import torch

import interpress
from interpress.dryrun.inputs import trial_kept


def test_spaces_that_only_a_cache_has_sizes_of_stay_whole() -> None:
    """RWKV makes its state from sizes in its config, unless it is called without a cache."""
    transformers = pytest.importorskip("transformers")
    config = transformers.RwkvConfig(
        vocab_size=96, hidden_size=32, num_hidden_layers=2, context_length=32
    )
    torch.manual_seed(0)
    model, tokens = transformers.RwkvForCausalLM(config).eval(), torch.randint(5, 96, (4, 11))
    spaces = interpress.find_spaces(model, tokens)
    assert spaces.shrinkable
    names = [space.name for space in spaces.shrinkable]
    smaller = interpress.shrink(spaces, trial_kept(spaces, names))
    assert smaller(tokens).logits.shape == (4, 11, 96)
