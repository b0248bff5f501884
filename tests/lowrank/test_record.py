"""The record of low rank, and its sentences."""

from __future__ import annotations

from interpress.lowrank.record import LowRank, ThinPair
from interpress.spaces.cost import Cost

PAIR = ThinPair("conv", rank=4, outputs=16, inputs=27, positions=10, itemsize=4)


def test_a_pair_costs_its_two_layers() -> None:
    assert PAIR.saved == 16 * 27 - 4 * (16 + 27)
    assert PAIR.share == 4 * 43 / (16 * 27)
    reduced = LowRank((PAIR,)).reduced(Cost(100_000, 5000, 2000))
    assert reduced == Cost(100_000 - 20 * PAIR.saved, 5000 - PAIR.saved, 2000 + 4 * 10 * 4)


def test_the_sentence_names_layers_losses_and_run_time() -> None:
    losses = {"channels alone": 0.2, "low rank": 0.1}
    sentence = str(LowRank((PAIR,), losses=losses, latency=(0.8, 0.6)))
    assert sentence == (
        "Low rank: 1 layer became two: conv (rank 4 of 16); held-out loss 0.1, with channels alone "
        "0.2. Measured run time 0.80 of the original's, with channels alone 0.60."
    )
    assert str(LowRank((PAIR,), latency=(0.8, None))).endswith(
        "Measured run time 0.80 of the original's; channels alone cannot meet this budget."
    )
    named = LowRank((PAIR,), losses=losses).described("mean √KL")
    assert named.endswith("; held-out mean √KL 0.1, with channels alone 0.2.")
    many = LowRank((PAIR,) * 7, losses=losses)
    assert "7 layers became two" in str(many)
    assert "and 3 more" in str(many)


def test_the_sentence_says_why_nothing_was_done() -> None:
    assert str(LowRank(reason="no gain")) == "Low rank: no gain."
    assert LowRank(reason="no gain").record() == {
        "ranks": {}, "losses": {}, "latency": None, "proof": None, "reason": "no gain"
    }  # fmt: skip
