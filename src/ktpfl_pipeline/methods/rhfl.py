"""RHFL: each client learns from all others, weighted by how low and how fast falling their losses are.

Fang, Ye: Robust Federated Learning With Noisy and Heterogeneous Clients, CVPR 2022,
https://openaccess.thecvf.com/content/CVPR2022/html/Fang_Robust_Federated_Learning_With_Noisy_and_Heterogeneous_Clients_CVPR_2022_paper.html
Clients train on the symmetric cross-entropy, which false labels change less: Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric
Cross Entropy for Robust Learning with Noisy Labels, ICCV 2019, https://arxiv.org/abs/1908.06112
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, params_of, select

LOG_ZERO = math.log(1e-4)
"""The logarithm of 0 in the reverse cross-entropy, as in the authors' code."""


@dataclass(frozen=True, eq=False)
class RHFLState(PersonalState):
    """The state between rounds: each client's model and last loss.

    Attributes:
        losses: (N,) float64, the mean loss on each client's training samples after its last local training; 0 before
            the first one.
    """

    losses: Tensor


@dataclass(frozen=True)
class RHFL(Personal):
    """RHFL (Fang and Ye, 2022): clients whose losses are low and fall fast teach more.

    Attributes:
        cross_entropy: λ, the weight of the cross-entropy in the local loss; 0.1 in the authors' code.
        reverse: γ, the weight of the reverse cross-entropy in the local loss; 1 in the authors' code. With λ = 1 and
            γ = 0 clients train as in other methods.
        trust: η, how much weights depend on confidence; 0.5 in the authors' code. With 0 all others weigh the same.
    """

    title = "RHFL"
    exchanges = frozenset({"predictions", "coefficients"})

    cross_entropy: Annotated[float, Ge(0)] = 0.1
    reverse: Annotated[float, Ge(0)] = 1.0
    trust: Annotated[float, Ge(0)] = 0.5

    def init(self, fed: Federation) -> RHFLState:
        """Start from the initial models; no loss is known."""
        return RHFLState(fed.initial_models(), torch.zeros(len(fed.clients), dtype=torch.float64, device=fed.device))

    def round(self, state: RHFLState, cohort: list[int], t: int, fed: Federation) -> tuple[RHFLState, RoundReport]:
        """Train, predict, send the loss, weight the others by confidence, and distill."""
        trained = fed.train_with(train_client, select(state.models, cohort), t, self)
        upload = exchange.predict(fed, state.models, trained, t)
        found = fed.run("confidence", private_loss, {n: (params, self) for n, params in trained.items()})
        rows, now = fed.rows(cohort), torch.stack([*found.values()])  # (|S|,)
        weights, sums = self.weights(state.losses[rows], now)
        factors = dict(zip(cohort, sums.tolist(), strict=True))
        after, report = exchange.teach_mixtures(fed, state, upload, weights, t, factors)
        traffic = {n: own + Traffic(coefficients_up=4) for n, own in report.traffic.items()}
        return RHFLState(after.models, state.losses.index_copy(0, rows, now)), replace(report, traffic=traffic)

    def weights(self, before: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of each client's teachers, (|S|, |S|), whose rows sum to one, and its sum of weights.

        Client m has the confidence F_m = (before_m - now_m) / now_m, its learning efficiency times its label quality,
        or 0 if it has no earlier loss. Its weight for all others is W_m, the softmax of η F_m / Σ F over the cohort.
        The paper's loss Σ_{m≠n} W_m KL(s_m ‖ s_n) has the gradient of (1 - W_n) times the divergence from the mixture
        of the others' s_m. While no confidence is known, the weights are 1/(|S| - 1) each.

        Args:
            before: (|S|,) the clients' losses after their previous local training, or 0.
            now: (|S|,) their losses after this local training.
        """
        gains = torch.where(before > 0, (before - now) / now, 0.0)
        total = gains.sum()
        weights = torch.softmax(self.trust * gains / torch.where(total == 0, 1.0, total), dim=0)  # W, (|S|,)
        itself = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
        others = weights * (1.0 - itself)
        sums = others.sum(dim=1)
        mixture = torch.where(sums[:, None] > 0, others / sums[:, None], itself)  # one client alone teaches itself
        return mixture, torch.where((before > 0).any(), sums, 1.0)

    def adapt(self, state: RHFLState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return models trained on the symmetric cross-entropy, as in a round."""
        return fed.train_with(train_client, models, 0, self, epochs)

    def symmetric(self, cross_entropy: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the local loss λ·CE + γ·RCE, (), from its cross-entropy, (), logits, (b, K), and labels, (b,).

        RCE is -Σ_k p_k log y_k, averaged over samples: -log 10⁻⁴ times the probability of all other classes.
        """
        others = 1.0 - F.one_hot(labels, logits.shape[1]).to(logits)
        reverse = -LOG_ZERO * (torch.softmax(logits, dim=1).clamp_min(1e-7) * others).sum(dim=1).mean()
        return self.cross_entropy * cross_entropy + self.reverse * reverse


def train_client(
    space: Workspace, n: int, params: Params, t: int, method: RHFL, epochs: int | None = None
) -> Outcome[Params]:
    """Train E epochs, or `epochs`, on the symmetric cross-entropy over client n's data."""
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()

    def loss(batch: Tensor) -> Tensor:
        logits = module(own.inputs(batch))
        return method.symmetric(own.loss(logits, batch), logits, own.labels[batch])

    return own.descend(module, loss, epochs).giving(params_of(module))


def private_loss(space: Workspace, n: int, params: Params, method: RHFL) -> Outcome[Tensor]:
    """Return the mean local loss over client n's training samples, () float64; the model is in eval mode."""
    samples = space.split(n, "train")
    logits = predict(space, space.module(n, params), samples.inputs).double()
    return Outcome(method.symmetric(F.cross_entropy(logits, samples.labels), logits, samples.labels))
