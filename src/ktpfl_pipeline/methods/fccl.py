"""FCCL: models agree with the clients' mean logits class by class, and keep what they knew by distilling their past.

Huang, Ye, Du: Learn from Others and Be Yourself in Heterogeneous Federated Learning, CVPR 2022,
https://openaccess.thecvf.com/content/CVPR2022/html/Huang_Learn_From_Others_and_Be_Yourself_in_Heterogeneous_Federated_Learning_CVPR_2022_paper.html
The loss on public samples is that of Barlow Twins, except that different classes become opposite, not independent.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.operations import distillation_loss, train_on_public
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, params_of, select


@dataclass(frozen=True, eq=False)
class FCCLState(PersonalState):
    """The state between rounds: each client's model, and the models that it remembers. They never leave the client.

    Attributes:
        previous: the client's model after its last local training, the teacher between domains.
        pretrained: the client's model after its first local training, the teacher within its own domain.
    """

    previous: Models
    pretrained: Models


@dataclass(frozen=True)
class FCCL(Personal):
    """FCCL (Huang et al., 2022): correlate each class with the mean of all clients, and do not forget.

    Attributes:
        off_diagonal: λ_Col, the weight of pairs of different classes; 0.0051 in the paper.
        memory: the weight of both distillations of the client's earlier models in the local loss; 1 in the paper.
    """

    title = "FCCL"
    own_knowledge = frozenset({"encoding", "k", "cache", "select"})  # a constant added to a sample's logits matters
    pretrains: ClassVar[bool] = True  #: whether clients remember their model after their first local training

    off_diagonal: Annotated[float, Ge(0)] = 0.0051
    memory: Annotated[float, Ge(0)] = 1.0

    def init(self, fed: Federation) -> FCCLState:
        """Start from the initial models; no client remembers one yet."""
        return FCCLState(fed.initial_models(), {}, {})

    def round(self, state: FCCLState, cohort: list[int], t: int, fed: Federation) -> tuple[FCCLState, RoundReport]:
        """Train with memory, predict the public batch, and learn from the average of what the cohort uploaded."""
        earlier = {n: tuple(each[n] for each in (state.previous, state.pretrained) if n in each) for n in cohort}
        calls = {n: (state.models[n], earlier[n], self, t) for n in cohort}
        trained = fed.run_training("train", train_client, calls, select(state.models, cohort))
        upload = exchange.predict(fed, state.models, trained, t)
        mean, batch = upload.logits.double().mean(dim=0), sent(upload.batch, fed.device)  # z̄, (B, K)
        learned, more = self.collaborate(upload.models, mean, batch, t, fed)
        traffic = Traffic(mean.float().nbytes, mean.float().nbytes, public_down=fed.public_bytes()) + more
        pretrained = {**trained, **state.pretrained} if self.pretrains else {}
        after = FCCLState({**state.models, **learned}, {**state.previous, **trained}, pretrained)
        return after, RoundReport(trained, dict.fromkeys(cohort, traffic))

    def collaborate(
        self, models: Models, mean: Tensor, batch: Tensor, t: int, fed: Federation
    ) -> tuple[Models, Traffic]:
        """Return each model after it learned from the mean logits, and a client's traffic for anything else."""
        calls = {n: (params, mean, batch, self.off_diagonal, t) for n, params in models.items()}
        return fed.run_training("distill", correlate, calls, models, recipe=fed.distillation), Traffic()

    def forgotten(self, logits: Tensor, earlier: Tensor, labels: Tensor) -> Tensor:
        """Return KL(earlier model ‖ model), (), from the logits of both, (b, K) each; labels, (b,), are not used."""
        return distillation_loss(logits, torch.softmax(earlier, dim=1), 1.0)


def train_client(
    space: Workspace, n: int, params: Params, earlier: tuple[Params, ...], method: FCCL, t: int
) -> Outcome[Params]:
    """Train E epochs on CE + λ·Σ `FCCL.forgotten` over client n's data, a sum over its earlier models.

    With λ = 0, or without earlier models, the training equals local training bit for bit.
    """
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    teachers = [space.module(n, each, f"earlier {i}").eval() for i, each in enumerate(earlier) if method.memory]

    def loss(batch: Tensor) -> Tensor:
        inputs = own.inputs(batch)
        logits = module(inputs)
        found = own.loss(logits, batch)
        for teacher in teachers:
            with torch.no_grad():
                known = teacher(inputs)
            found = found + method.memory * method.forgotten(logits, known, own.labels[batch])
        return found

    return own.descend(module, loss).giving(params_of(module))


def correlate(
    space: Workspace, n: int, params: Params, mean: Tensor, batch: Tensor, weight: float, t: int
) -> Outcome[Params]:
    """Train for R epochs on the `correlation_loss` of the logits of public samples with the mean logits, (B, K)."""
    target = mean.to(space.device, space.dtype)
    return train_on_public(
        space, n, params, batch, t, lambda own, part: correlation_loss(own, target.index_select(0, part), weight)
    )


def correlation_loss(logits: Tensor, mean: Tensor, weight: float) -> Tensor:
    """Return L_Col = Σ_u (1 - M_uu)² + λ_Col Σ_u Σ_{v≠u} (1 + M_uv)², ().

    M_uv is the correlation over samples of a model's logit of class u with the mean logit of class v, -1 to 1; it is 0
    if one of them is the same for all samples. `logits` and `mean` are (b, K).
    """
    own, common = (F.normalize(each - each.mean(dim=0), dim=0) for each in (logits, mean))
    m = own.T @ common  # (K, K)
    same = m.diagonal()
    apart = (1.0 + m).square().sum() - (1.0 + same).square().sum()
    return (1.0 - same).square().sum() + weight * apart
