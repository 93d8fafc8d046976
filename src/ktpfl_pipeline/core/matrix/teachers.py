"""Teachers: the class distributions that students learn from, mixed from the soft predictions of the cohort."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError

ROUNDING = 1e-4
"""How far the sum of a teacher's probabilities may be from 1, due to float32, many classes and many clients."""


def soft_predictions(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return softmax(z / T) of uploaded logits, (N, B, K), in float64."""
    return torch.softmax(logits.double() / temperature, dim=-1)


def log_soft_predictions(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(z / T) of uploaded logits, (N, B, K), in float64. It is finite if a probability underflows."""
    return torch.log_softmax(logits.double() / temperature, dim=-1)


def mix_teachers(c: Tensor, soft: Tensor) -> Tensor:
    """Return each student's personalized soft prediction p_n = Σ_m c[n, m] s_m, (N, B, K) (Eq. 6)."""
    return (c @ soft.flatten(1)).view_as(soft)


def mix_logits(c: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return teachers softmax(Σ_m c[n, m] z_m / T), (N, B, K) float64, from uploaded logits z, (N, B, K).

    If the rows of c sum to 1, a teacher is the normalized geometric mean of the soft predictions with weights c.
    """
    return torch.softmax(mix_teachers(c, logits.double() / temperature), dim=-1)


def check_teachers(soft: Tensor, whose: Sequence[int | str]) -> None:
    """Check that teachers, (n, B, K) for n students or (B, K) for all of them, are distributions.

    Raises InputError with the first student whose teacher is not a distribution, and with the wrong values.
    `whose` are the students: ids of clients, or names of the server's models.
    """
    parts = soft if soft.dim() == 3 else soft[None]
    sums = parts.sum(dim=2)  # (n, B)
    sound = (sums - 1.0).abs() <= ROUNDING  # false for NaN
    if sound.all() & (parts.amin() >= 0.0):
        return
    least = parts.amin(dim=2)
    row, sample = (~sound | (least < 0.0)).nonzero()[0].tolist()
    raise InputError(
        f"The teacher of {whose[row]} is not a distribution on public sample {sample} of the batch (it sums to "
        f"{float(sums[row, sample]):.6g}, and its least value is {float(least[row, sample]):.6g}). Soft predictions "
        "must be at least 0 and sum to 1. A method mixes them with weights that sum to 1, or normalizes them."
    )
