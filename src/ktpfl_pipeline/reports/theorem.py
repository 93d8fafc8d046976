"""Theorem 1 of KT-pFL, checked on a finished run.

The theorem says that some mixture of the clients' models is, for each client, no worse than its own model and no worse
than their plain average. On the simplex that is immediate, because both are mixtures; it says nothing about the mixture
that KT-pFL finds. So the best mixture is fitted here to half of each client's test images, by maximum likelihood, and
all four are compared on both halves.
"""

from dataclasses import dataclass

MIXTURES = ("fitted", "own", "average", "learned")
"""The best mixture, the client's own model, the average of all, and the method's own row of coefficients."""


@dataclass(frozen=True)
class TheoremCheck:
    """What came out, client by client.

    Attributes:
        fit: mean negative log-likelihood of each mixture on the images it was fitted to, by mixture, (N,) each.
        test: the same on the other images.
        accuracy: on the other images, by mixture, (N,) each, 0..1.
        certificate: (N,) upper bound on the distance of the fitted mixture from the best possible value, in nats.
        coefficients: (N, N) the fitted mixtures, row = client.
        samples: (N, 2) number of images to fit, and others.
    """

    fit: dict[str, list[float]]
    test: dict[str, list[float]]
    accuracy: dict[str, list[float]]
    certificate: list[float]
    coefficients: list[list[float]]
    samples: list[list[int]]
