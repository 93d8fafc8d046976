"""FedRE: each client sends one random mixture of its class means and labels, and the server trains a head on them.

Yao, Wang, Wu, Song, Chen, Wang, Tian, Chen, Li, Li: FedRE: A Representation Entanglement Framework for
Model-Heterogeneous Federated Learning, CVPR 2026, https://arxiv.org/abs/2511.22265. A representation is the feature of
LG-FedAvg, pooled to a common dimension F by averaging neighboring entries.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.features import class_means
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, select, wire_bytes
from ktpfl_pipeline.methods.fedgh import train_head
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True)
class FedRE(LGFedAvg):
    """FedRE (Yao et al., 2026): mixtures of classes, new in each round, hide class means and smooth the shared head.

    Attributes:
        rate: the server's step size; 0.01 in the authors' code, where a step is on the sum over a mini-batch.
        epochs: the server's passes over the uploaded mixtures; 1 in the authors' code.
        batch: mixtures of a mini-batch of the server; 32 in the authors' code.
    """

    title = "FedRE"
    exchanges = frozenset({"parameters", "prototypes"})

    rate: Annotated[float, Gt(0)] = 0.01
    epochs: Annotated[int, Ge(1)] = 1
    batch: Annotated[int, Ge(1)] = 32

    def round(
        self, state: CommonHeadState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[CommonHeadState, RoundReport]:
        """Train with the shared head, upload a mixture of class means and labels, and train the head at the server."""
        trained, _ = common_head.train(fed, select(state.models, cohort), self.heads(state, cohort, fed), t)
        found = fed.run("prototypes", entangled, {n: (params, self.dimension, t) for n, params in trained.items()})
        check_finite("prototypes", {n: mixture for n, (mixture, _) in found.items()})
        mixtures, labels = (torch.stack(each) for each in zip(*found.values(), strict=True))  # (|S|, F), (|S|, K)
        recipe = Recipe(self.epochs, self.batch, self.rate)
        head = fed.fuse("head", train_head, state.head, recipe, t, mixtures, labels, "sum")
        size = 4 * (self.dimension + fed.classes)
        traffic = dict.fromkeys(cohort, Traffic(prototypes_up=size, parameters_down=wire_bytes(state.head)))
        return CommonHeadState({**state.models, **trained}, head), RoundReport(trained, traffic)


def entangled(space: Workspace, n: int, params: Params, dimension: int, t: int) -> Outcome[tuple[Tensor, Tensor]]:
    """Return the mixture Σ_k v_k r_k of client n's class means r, (F,) float64, and its label v, (K,).

    v_k is a uniform random number between 0 and 1 for each class that the client has, divided by their sum.
    """
    means, owned = class_means(space, n, params, dimension).value  # (K, F), (K,)
    drawn = torch.rand(len(owned), generator=space.setting.stream("entanglement", t, n), dtype=torch.float64)
    weights = sent(drawn, space.device) * owned
    weights = weights / weights.sum()
    return Outcome((weights @ means, weights))
