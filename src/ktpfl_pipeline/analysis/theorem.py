"""Theorem 1 of KT-pFL, checked on a finished run.

For each client, the theorem says, some mixture of the clients' models is at least as good as its own model and as
their plain average. On the simplex that is immediate, because both are mixtures; it says nothing about the mixture
that KT-pFL finds. So the best mixture is fitted here to half of each client's test samples, by maximum likelihood, and
all four are compared on both halves.
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
"""The best mixture, the client's own model, the average of all, and the method's own row of coefficients."""
GAP = 1e-8
"""Nats within which the best mixture is found, unless that takes too many steps."""


def check(
    probabilities: Sequence[Tensor], labels: Sequence[Tensor], learned: Tensor | None, seed: int
) -> TheoremCheck | None:
    """Check Theorem 1 on each client's held-out samples, half of them to fit and half to test.

    Args:
        probabilities: for each of N clients, (M_n, N, K) what each client's model says of its samples.
        labels: for each client, (M_n,).
        learned: (N, N) coefficients that the method ended with; None leaves the mixture ``learned`` out.
        seed: of the halves.

    Returns:
        The check; None where a client has fewer than two samples, one for each half.
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
    """Return the mixture of the greatest likelihood, (N,), and a bound on what is missing to the best one, in nats.

    It is one row of the matrix's likelihood objective without a penalty. The loss is convex, and log max_m g_m with
    g_m = mean_i P[i, m] / (P c)_i bounds its distance from the least.

    P are the `likelihoods`, (M, N), the probability of sample i's true label under model m, above zero.
    """
    samples, n = likelihoods.shape
    one = likelihoods.new_ones(1)
    objective = Likelihood(likelihoods[None], samples=samples * one, weights=one, rho=0.0)
    c = exact(objective, likelihoods.new_full((1, n), 1.0 / n), limit=10_000, gap=GAP)
    return c[0], max(0.0, float((-objective.gradient(c)).max().log()))


def _loss(likelihoods: Tensor, c: Tensor) -> float:
    return float(-(likelihoods @ c).log().mean())
