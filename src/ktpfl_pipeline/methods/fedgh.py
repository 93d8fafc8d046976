"""FedGH: the server trains one head on the class means of all clients, and this head replaces the clients' heads.

Yi, Wang, Liu, Shi, Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header, ACM MM 2023,
Algorithm 1, https://arxiv.org/abs/2303.13137. A class mean is the paper's local averaged representation: the mean of
features, pooled to a common dimension F by averaging neighboring entries.
"""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.weights import Params, params_of, select, wire_bytes
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True)
class FedGH(LGFedAvg):
    """FedGH (Yi et al., 2023): a head trained on all clients' classes generalizes better than a client's own.

    Attributes:
        rate: the server's step size.
        steps: the server's steps per round, each on all uploaded means.
    """

    title = "FedGH"
    exchanges = frozenset({"parameters", "prototypes"})

    rate: Annotated[float, Gt(0)] = 0.1
    steps: Annotated[int, Ge(1)] = 100

    def round(
        self, state: CommonHeadState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[CommonHeadState, RoundReport]:
        """Train with the shared head, upload class means, and train the head on the class means at the server."""
        trained, _ = common_head.train(fed, select(state.models, cohort), self.heads(state, cohort, fed), t)
        means, owned = common_head.upload_means(fed, trained, self.dimension)  # (|S|, K, F), (|S|, K)
        labels = owned.nonzero()[:, 1]  # (M,) of the M uploaded means
        recipe = Recipe(self.steps, len(labels), self.rate)
        calls = {"head": (state.head, means[owned], labels, recipe, t)}
        head = fed.run_training("fuse", train_head, calls, {"head": state.head}, recipe=recipe)["head"]
        traffic = {
            n: Traffic(prototypes_up=4 * self.dimension * own, parameters_down=wire_bytes(state.head))
            for n, own in zip(cohort, owned.sum(dim=1).tolist(), strict=True)
        }
        return CommonHeadState({**state.models, **trained}, head), RoundReport(trained, traffic)


def train_head(
    space: Workspace,
    name: str,
    head: Params,
    means: Tensor,
    labels: Tensor,
    recipe: Recipe,
    t: int,
    reduction: str = "mean",
) -> Outcome[Params]:
    """Train the server's head on the cross-entropy of the class means, (M, F), and their classes `labels`.

    `labels` are classes, (M,), or probabilities of classes, (M, K).
    """
    module, inputs = space.linear(head), means.to(space.device, space.dtype)
    targets = labels.to(space.device, space.dtype if labels.is_floating_point() else None)

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(module(inputs[batch]), targets[batch], reduction=reduction)

    outcome = descend(space, module, loss, len(labels), recipe, t, space.setting.stream("server shuffle", t))
    return outcome.giving(params_of(module))
