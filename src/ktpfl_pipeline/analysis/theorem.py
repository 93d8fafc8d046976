"""A check of KT-pFL's Theorem 1 on a finished run.

According to the theorem, a mixture of the clients' models exists for each client that is at least as good as the
client's own model and as the average of all models. On the simplex this is trivial, because both are mixtures, and the
theorem makes no statement about the mixture that KT-pFL finds. This module therefore fits the best mixture to half of
each client's test samples by maximum likelihood, and compares the mixtures in `MIXTURES` on both halves.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ktpfl_pipeline.analysis.results import TheoremCheck
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.objectives import Likelihood
from ktpfl_pipeline.core.matrix.updates import exact
from ktpfl_pipeline.core.rng import stream

MIXTURES = ("fitted", "own", "average", "learned")
"""The fitted mixture, the client's own model, the average of all models, and the method's coefficients."""
GAP = 1e-8
"""The target for the distance of the fitted mixture's loss from the minimum, in nats."""


def check(
    probabilities: Sequence[Tensor], labels: Sequence[Tensor], learned: Tensor | None, seed: int
) -> TheoremCheck | None:
    """Check Theorem 1 on each client's test samples: half of them are used to fit a mixture, and half to test it.

    Args:
        probabilities: for each of N clients, the class probabilities of each of the N models for the client's samples,
            (M_n, N, K).
        labels: for each client, the labels of its samples, (M_n,).
        learned: the method's final coefficients, (N, N); None leaves the mixture ``learned`` out.
        seed: the seed of the random halves.

    Returns:
        The results; None if a client has fewer than two samples.
    """
    if min(map(len, labels)) < 2:
        return None
    n, found = len(labels), TheoremCheck({}, {}, {}, [], [], [])
    rows = {"own": torch.eye(n, dtype=torch.float64), "average": torch.full((n, n), 1.0 / n, dtype=torch.float64)}
    if learned is not None:
        rows["learned"] = learned.double()
    for client, (said, truth) in enumerate(zip(probabilities, labels, strict=True)):
        order = torch.randperm(len(truth), generator=stream(seed, "theorem", client))
        half = len(truth) // 2
        fit, test = order[:half], order[half:]
        likelihoods = said[torch.arange(len(truth)), :, truth].double().clamp_min(TINY)  # P, (M_n, N)
        fitted, certificate = fit_mixture(likelihoods[fit])
        for name, c in {"fitted": fitted, **{name: matrix[client] for name, matrix in rows.items()}}.items():
            found.fit.setdefault(name, []).append(_loss(likelihoods[fit], c))
            found.test.setdefault(name, []).append(_loss(likelihoods[test], c))
            guesses = torch.einsum("imk,m->ik", said[test].double(), c).argmax(dim=1)
            found.accuracy.setdefault(name, []).append(float((guesses == truth[test]).double().mean()))
        found.certificate.append(certificate)
        found.coefficients.append(fitted.tolist())
        found.samples.append([len(fit), len(test)])
    return found


def fit_mixture(likelihoods: Tensor) -> tuple[Tensor, float]:
    """Return the maximum-likelihood mixture c, (N,), and an upper bound on its distance from the optimum, in nats.

    The objective is one row of the coefficient matrix's likelihood objective without a penalty. The loss is convex. Its
    distance from the minimum is at most log max_m g_m with g_m = mean_i P[i, m] / (P c)_i.

    Args:
        likelihoods: P, (M, N), the probability of the true label of sample i under model m, above zero.
    """
    samples, n = likelihoods.shape
    one = likelihoods.new_ones(1)
    objective = Likelihood(likelihoods[None], samples=samples * one, weights=one, rho=0.0)
    c = exact(objective, likelihoods.new_full((1, n), 1.0 / n), limit=10_000, gap=GAP)
    return c[0], max(0.0, float((-objective.gradient(c)).max().log()))


def _loss(likelihoods: Tensor, c: Tensor) -> float:
    return float(-(likelihoods @ c).log().mean())
