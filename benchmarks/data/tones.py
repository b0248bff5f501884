"""Synthesised tones of known pitch, with noise: frames for a pitch network.

A tone has a fundamental between 50 and 1,000 Hz, a glide of at most one semitone per frame, and up
to 12 harmonics with random phases, whose amplitudes fall with their number. White noise is added at
a signal-to-noise ratio between 0 and 30 dB. Each frame is shifted to mean 0 and scaled to deviation
1, as CREPE expects. All random quantities are uniform (the fundamental and the glide in octaves).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

RATE = 16_000  # samples per second
SAMPLES = 1024
LOWEST, HIGHEST = 50.0, 1000.0  # Hz
_HARMONICS = 12
_GLIDE = 1 / 12  # octaves per frame
_LOUDEST_NOISE, _SOFTEST_NOISE = 0.0, 30.0  # dB of signal over noise


class Tones(NamedTuple):
    """Frames, and the pitch in the middle of each."""

    frames: Tensor
    """(count, 1024)"""
    hertz: Tensor
    """(count,)"""


def synthesise(count: int, seed: int) -> Tones:
    """Return random tones; the seed decides all of them."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        values = torch.rand(count, *shape, generator=generator, dtype=torch.float64)
        return low + (high - low) * values

    hertz = LOWEST * 2 ** uniform(0, math.log2(HIGHEST / LOWEST))
    time = torch.arange(SAMPLES, dtype=torch.float64) / SAMPLES - 0.5  # frames
    pitch = hertz[:, None] * 2 ** (uniform(-_GLIDE, _GLIDE)[:, None] * time)  # (count, samples)
    cycles = pitch.cumsum(1) / RATE
    number = torch.arange(1, _HARMONICS + 1, dtype=torch.float64)
    slope, highest = uniform(0.5, 2), uniform(1, _HARMONICS + 1)
    amplitudes = number ** -slope[:, None] * uniform(0, 1, _HARMONICS)
    amplitudes[:, 0] = 1
    audible = (number <= highest[:, None]) & (number * hertz[:, None] < RATE / 2.5)
    amplitudes *= audible  # none is near half of the sampling rate, even at the end of a glide
    phases = uniform(0, 1, _HARMONICS)
    signal = torch.zeros(count, SAMPLES, dtype=torch.float64)
    for harmonic in range(_HARMONICS):
        angle = 2 * math.pi * ((harmonic + 1) * cycles + phases[:, harmonic, None])
        signal += amplitudes[:, harmonic, None] * angle.sin()
    noise = torch.randn(count, SAMPLES, generator=generator, dtype=torch.float64)
    decibels = uniform(_LOUDEST_NOISE, _SOFTEST_NOISE)[:, None]
    frames = _normalised(signal) + 10 ** (-decibels / 20) * noise
    return Tones(_normalised(frames).float(), hertz)


def _normalised(frames: Tensor) -> Tensor:
    centred = frames - frames.mean(1, keepdim=True)
    return centred / centred.std(1, keepdim=True).clamp(min=1e-10)


def cents(hertz: Tensor) -> Tensor:
    """Return pitches in cents above 10 Hz."""
    return 1200 * torch.log2(hertz / 10)


def decoded(scores: Tensor) -> Tensor:
    """Return the pitch in cents from the scores (count, 360) of CREPE.

    Score i stands for `20 i + 1997.38` cents above 10 Hz. The pitch is the mean over the largest
    score and its four neighbours on either side, weighted by their scores.
    """
    near = scores.argmax(1, keepdim=True) + torch.arange(-4, 5, device=scores.device)
    inside = (near >= 0) & (near < scores.shape[1])
    weights = scores.gather(1, near.clamp(0, scores.shape[1] - 1)) * inside
    pitches = 20.0 * near + 1997.3794084376191
    return (weights * pitches).sum(1) / weights.sum(1).clamp(min=1e-30)
