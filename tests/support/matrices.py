"""Objectives, predictions and matrices to update, drawn at random."""

import torch
from torch import Tensor

from ktpfl_pipeline.core.matrix.objectives import Divergence, Likelihood, Objective, SquaredError
from ktpfl_pipeline.core.matrix.teachers import soft_predictions


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def predictions(n: int, b: int, k: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    """Return soft predictions, (n, b, k), of clients whose logits have the standard deviation `spread`."""
    return soft_predictions(spread * torch.randn(n, b, k, generator=stream(seed), dtype=torch.float64))


def simplex_rows(n: int, seed: int = 0) -> Tensor:
    return torch.softmax(torch.randn(n, n, generator=stream(seed + 1), dtype=torch.float64), dim=1)


def data_weights(n: int, seed: int = 0) -> Tensor:
    sizes = torch.randint(10, 100, (n,), generator=stream(seed + 2)).double()
    return sizes / sizes.sum()


def divergence(
    n: int = 5, b: int = 16, k: int = 4, lam: float | None = None, rho: float = 0.7, seed: int = 0
) -> Divergence:
    lam = n if lam is None else lam
    return Divergence(predictions(n, b, k, seed).log(), lam * data_weights(n, seed), rho)


def likelihood(n: int = 5, v: int = 16, rho: float = 0.7, seed: int = 0, spread: float = 3.0) -> Likelihood:
    """Return an objective in which every client has v images. Missing images of some clients have the value one."""
    probabilities = predictions(n * v, n, 4, seed, spread)[..., 0].view(n, v, n).clone()  # class 0 is the true one
    images = torch.tensor([v - (row % 3) * (v // 4) for row in range(n)], dtype=torch.float64)
    for row, own in enumerate(images.int().tolist()):
        probabilities[row, own:] = 1.0
    return Likelihood(probabilities, images, n * data_weights(n, seed), rho)


def objectives(n: int, rho: float, spread: float = 3.0, seed: int = 0) -> dict[str, Objective]:
    """Return one objective of each kind. A small `spread` makes predictions nearly uniform, a large one certain."""
    soft = predictions(n, 24, 6, seed, spread)
    return {
        "divergence": Divergence(soft.log(), n * data_weights(n, seed), rho),
        "squared error": SquaredError(soft, rho),
        "likelihood": likelihood(n, 24, rho, seed, spread),
    }


def gap(objective: Objective, c: Tensor) -> Tensor:
    """Return the certificate of each row, an upper bound on the difference to its optimal value."""
    g = objective.gradient(c)
    return (c * g).sum(dim=1) - g.min(dim=1).values


def independent_loss(c: Tensor, soft: Tensor, weights: Tensor, rho: float) -> Tensor:
    """Return lambda sum_n a_n KL(p_n || s_n) + rho ||C - 1/N||^2, computed client by client."""
    n = len(c)
    total = rho * ((c - 1 / n) ** 2).sum()
    for student in range(n):
        teacher = sum(c[student, m] * soft[m] for m in range(n))
        kl = (teacher * (teacher.log() - soft[student].log())).sum(dim=1).mean()
        total = total + weights[student] * kl
    return total
