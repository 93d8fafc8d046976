"""Teachers: what each student learns from, mixed from the soft predictions of the cohort."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError

ROUNDING = 1e-4
"""How far from 1 a teacher's probabilities may add up: float32, many classes, and a mixture of many clients."""


def soft_predictions(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return softmax(z / T) of uploaded logits, (N, B, K), in float64."""
    return torch.softmax(logits.double() / temperature, dim=-1)


def log_soft_predictions(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(z / T) of uploaded logits, (N, B, K), in float64: exact where a probability underflows."""
    return torch.log_softmax(logits.double() / temperature, dim=-1)


def mix_teachers(c: Tensor, soft: Tensor) -> Tensor:
    """Return each student's personalized soft prediction p_n = Σ_m c[n, m] s_m, (N, B, K) as `soft` (Eq. 6)."""
    return (c @ soft.flatten(1)).view_as(soft)


def mix_confident(c: Tensor, soft: Tensor, confidence: float) -> Tensor:
    """Return teachers, (N, B, K), that weigh clients by their confidence in a sample; 0 is `mix_teachers`.

    p_n(x) = Σ_m c_nm κ_m(x) s_m(x) / Σ_m c_nm κ_m(x), with κ_m(x) = (max_k s_mk(x))^γ; `confidence` is γ.
    """
    sure = soft.amax(dim=2) ** confidence  # (N, B)
    return mix_teachers(c, sure[..., None] * soft) / (c @ sure)[..., None]


def check_teachers(soft: Tensor, whose: Sequence[int | str]) -> None:
    """Check that the teachers of n students, (n, B, K), or (B, K) the same for all, are distributions.

    InputError names the first student whose teacher is not one, and its values.
    """
    parts = soft if soft.dim() == 3 else soft[None]
    sums = parts.sum(dim=2)  # (n, B)
    sound = (sums - 1.0).abs() <= ROUNDING  # not so for NaN
    if sound.all() & (parts.amin() >= 0.0):
        return
    least = parts.amin(dim=2)
    row, sample = (~sound | (least < 0.0)).nonzero()[0].tolist()
    raise InputError(
        f"The teacher of {whose[row]} is not a distribution on public sample {sample} of the batch (it sums to "
        f"{float(sums[row, sample]):.6g}, and its least value is {float(least[row, sample]):.6g}). Soft predictions "
        "must be at least 0 and sum to 1. A method mixes them with weights that sum to 1, or normalizes them."
    )
