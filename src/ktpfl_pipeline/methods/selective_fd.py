"""Selective-FD: clients predict only samples that resemble their own, and the server sends only confident averages.

Shao, Wu, Zhang: Selective knowledge sharing for privacy-preserving federated distillation without a good teacher,
Nature Communications 15, 2024 (arXiv 2023), https://arxiv.org/abs/2304.01731. A client selects samples by the density
ratio of its own samples to noise (KuLSIF: Kanamori, Suzuki, Sugiyama, Machine Learning 86, 2012).
"""

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange, linalg
from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState
from ktpfl_pipeline.core.transfer import fetched, sent

MOST = 1000
"""The largest number of training samples for an estimate of densities, whose cost grows with the number's square."""


@dataclass(frozen=True)
class SelectiveFD(Personal):
    """Selective-FD (Shao et al., 2024): predictions on unfamiliar samples and uncertain ensembles are filtered out.

    Attributes:
        quantile: the quantile of the density ratios of a client's held-out samples that a public sample must reach. The
            client does not predict public samples with a smaller ratio.
        ambiguity: τ, the largest L1 distance, 0 to 2, of a taught average from the one-hot vector of its largest class.
        width: σ of the Gaussian kernel; None takes the median distance between the client's samples.
        regularization: λ of KuLSIF.
    """

    title = "Selective-FD"
    own_knowledge = frozenset({"select"})

    quantile: Annotated[float, Interval(ge=0, le=1)] = 0.25
    ambiguity: Annotated[float, Interval(ge=0, le=2)] = 1.0
    width: Annotated[float | None, Gt(0)] = None
    regularization: Annotated[float, Ge(1e-9)] = 1e-3

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Select samples, train, predict, average over the clients that predict a sample, select again, and distill."""
        batch = fed.public_batch(t)
        calls = dict.fromkeys(cohort, (batch, self.quantile, self.width, self.regularization))
        chosen = fed.run("select", familiar, calls)
        upload = exchange.train_and_predict(
            fed, state.models, cohort, t, batch, torch.stack([chosen[n] for n in cohort])
        )
        ensemble = upload.soft.mean(dim=0)  # over the clients that predict a sample
        sure = (2.0 * (1.0 - ensemble.amax(dim=1)) <= self.ambiguity).to(upload.batch.device).nonzero()[:, 0]
        taught = replace(upload, batch=upload.batch[sure])
        after, report = exchange.teach(fed, state, taught, ensemble[sent(sure, ensemble.device)], t)
        predicted = fmean(fetched([chosen[n].double().mean() for n in cohort]))
        return after, replace(report, metrics={"predicted_share": predicted, "taught_share": len(sure) / len(batch)})


def familiar(
    space: Workspace, n: int, batch: Tensor, quantile: float, width: float | None, regularization: float
) -> Outcome[Tensor]:
    """Return which public samples resemble client n's training samples, (B,) bool.

    A fixed random tenth of the training samples is not used for the estimate; the quantile is computed from it. The
    noise is uniform between the smallest and the largest value of the client's and the public samples.
    """
    samples = vectors(space, space.split(n, "train").inputs)
    order = sent(torch.randperm(len(samples), generator=space.setting.stream("density", n))[:MOST], space.device)
    held = max(1, len(order) // 10)
    known, checked = samples[order[held:]], samples[order[:held]]
    if not len(known):  # the client has one sample
        known = checked
    public = space.setting.public
    ends = sent(torch.stack([public.min(), public.max()]).view(2, *(1 for _ in public.shape[1:])), space.device)
    low, high = torch.cat([known.flatten(), vectors(space, ends).flatten()]).aminmax()
    drawn = torch.rand(known.shape, generator=space.setting.stream("density noise", n), dtype=known.dtype)
    ratio = DensityRatio(known, low + (high - low) * sent(drawn, space.device), width, regularization)
    return Outcome(ratio(vectors(space, space.public(batch))) >= ratio(checked).quantile(quantile))


def vectors(space: Workspace, inputs: Tensor) -> Tensor:
    """Return a model's inputs as float64 vectors, (n, d)."""
    return space.numbers(inputs).flatten(1).double()


class DensityRatio:
    """The density ratio of `known` samples, (n, d), to `noise`, (m, d), by kernel least squares in closed form.

    The ratio r minimizes 1/2 E_noise r² - E_known r + λ/2 ‖r‖² in the function space of a Gaussian kernel k of width σ.
    With known samples x_i and noise y_j, r(x) = Σ_j α_j k(x, y_j) + 1/(nλ) Σ_i k(x, x_i). The coefficients α solve
    (K/m + λ I) α = -1/(nmλ) Σ_i k(y, x_i), where K, (m, m), is the kernel matrix of the noise.
    """

    def __init__(self, known: Tensor, noise: Tensor, width: float | None, regularization: float) -> None:
        """Solve for α. A `width` of None takes the median distance between known samples."""
        self.known, self.noise, self.regularization = known, noise, regularization
        self.width: float | Tensor = width or 1.0
        if width is None and len(known) > 1:
            distance = torch.pdist(known).median()
            self.width = distance.where(distance > 0, 1.0)  # on the device, without synchronization
        kernel = self._kernel(noise, noise) / len(noise)
        kernel.diagonal().add_(regularization)
        self.alpha = linalg.solve(kernel, -self._likeness(noise) / len(noise))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the ratio at x, (b, d), as (b,)."""
        found: Tensor = self._kernel(x, self.noise) @ self.alpha + self._likeness(x)
        return found

    def _likeness(self, x: Tensor) -> Tensor:
        return self._kernel(x, self.known).mean(dim=1) / self.regularization

    def _kernel(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(a, b).square() / (2.0 * self.width**2))
