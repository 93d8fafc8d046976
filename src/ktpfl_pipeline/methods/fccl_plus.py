"""FCCL+: FCCL that also aligns the similarities of features, and remembers only what concerns other classes.

Huang, Ye, Shi, Du: Generalizable Heterogeneous Federated Cross-Correlation and Instance Similarity Learning, IEEE TPAMI
2024 (online 2023), https://arxiv.org/abs/2309.16286
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core.client import Outcome, Workspace, sgd
from ktpfl_pipeline.core.client.features import features, seen_of_public
from ktpfl_pipeline.core.client.operations import train_on_public
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params
from ktpfl_pipeline.methods.fccl import FCCL, correlation_loss

NEVER = -1e9
"""A logit whose probability is 0."""


@dataclass(frozen=True)
class FCCLPlus(FCCL):
    """FCCL+ (Huang et al., 2023): align classes and instances on public samples, and distill non-target classes.

    The defaults are those of the authors' code for digits.

    Attributes:
        off_diagonal: λ, the weight of pairs of different classes; 0.0051 as in FCCL.
        memory: the weight of the distillation of the client's previous model in the local loss.
        temperature: T, the temperature of this distillation.
        normalized: whether the probabilities of the classes other than a sample's own sum to one in this distillation.
            The authors' code does not normalize them again, and so also lowers the probability of the sample's class.
        similarity: ω, the weight of the divergence of similarities on public samples.
        sharpness: τ, the temperature of the softmax over similarities.
    """

    title = "FCCL+"
    exchanges = frozenset({"predictions", "similarities"})
    needs_head = "layer"
    pretrains = False

    temperature: Annotated[float, Gt(0)] = 3.0
    normalized: bool = True
    similarity: Annotated[float, Ge(0)] = 3.0
    sharpness: Annotated[float, Gt(0)] = 0.02

    def collaborate(
        self, models: Models, mean: Tensor, batch: Tensor, t: int, fed: Federation
    ) -> tuple[Models, Traffic]:
        """Return each model after it was aligned with mean logits and similarities, and the latter's traffic."""
        found = fed.run("predict", similarities, {n: (params, batch, t) for n, params in models.items()})
        check_finite("similarities", found)
        alike = torch.stack([*found.values()]).double().mean(dim=0)  # (L,)
        calls = {n: (params, mean, alike, batch, self, t) for n, params in models.items()}
        learned = fed.run_training("distill", align, calls, models, recipe=fed.distillation)
        return learned, Traffic(similarities_up=alike.float().nbytes, similarities_down=alike.float().nbytes)

    def forgotten(self, logits: Tensor, earlier: Tensor, labels: Tensor) -> Tensor:
        """Return T² Σ_{k≠y} q_k (log q_k - log p_k), averaged over samples, (), where y is the label.

        p and q are the softmax of `logits` and of the earlier model's logits at temperature T: over the classes k ≠ y
        if `normalized`, so that this is a divergence, or over all classes.
        """
        target = F.one_hot(labels, logits.shape[1]).bool()
        given, known = logits / self.temperature, earlier / self.temperature
        if self.normalized:
            given, known = given.masked_fill(target, NEVER), known.masked_fill(target, NEVER)
        log_p, q = F.log_softmax(given, dim=1), torch.softmax(known, dim=1)
        return self.temperature**2 * F.kl_div(
            log_p.masked_fill(target, 0.0), q.masked_fill(target, 0.0), reduction="batchmean"
        )


def order(space: Workspace, t: int) -> torch.Generator:
    """Return the stream that orders the public samples of round t, the same for all clients."""
    return space.setting.stream("public shuffle", t)


def similarities(space: Workspace, n: int, params: Params, batch: Tensor, t: int) -> Outcome[Tensor]:
    """Return the cosines of the features of public samples in each mini-batch of `align`, (b, b) each, flat, (L,)."""
    settings, shuffle = space.setting.distillation, order(space, t)
    directions = F.normalize(seen_of_public(space, n, params, batch), dim=1)
    parts = [
        directions[part]
        for _ in range(settings.passes(len(batch)))
        for part in sgd.batches(len(batch), settings.batch_size, shuffle, space.device)
    ]
    return Outcome(torch.cat([(part @ part.T).flatten() for part in parts]))


def align(
    space: Workspace, n: int, params: Params, mean: Tensor, alike: Tensor, batch: Tensor, method: FCCLPlus, t: int
) -> Outcome[Params]:
    """Train for R epochs on FCCL's correlation loss plus ω·`similarity_loss` over the public samples, `batch`.

    `mean`, (B, K), are the mean logits; `alike`, (L,), is the mean of what `similarities` returned.
    """
    target, rest = mean.to(space.device, space.dtype), alike.to(space.device, space.dtype)
    with features(space.head(n, space.module(n, params))[1]) as seen:

        def loss(logits: Tensor, part: Tensor) -> Tensor:
            nonlocal rest
            taught, rest = rest.tensor_split([len(part) ** 2])
            own = F.normalize(seen.pop(), dim=1)
            apart = similarity_loss(own @ own.T, taught.view(len(part), -1), method.sharpness)
            return correlation_loss(logits, target[part], method.off_diagonal) + method.similarity * apart

        return train_on_public(space, n, params, batch, t, loss, order(space, t))


def similarity_loss(own: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Return KL(taught ‖ own) of each sample's softmax over its similarities to the others, (b, b), averaged, ()."""
    itself = torch.eye(len(own), dtype=torch.bool, device=own.device)
    target = torch.softmax((taught / temperature).masked_fill(itself, NEVER), dim=1)
    return F.kl_div(F.log_softmax((own / temperature).masked_fill(itself, NEVER), dim=1), target, reduction="batchmean")
