"""FedRoD: a shared body with two heads, the shared head and a personal head that each client adds to it.

Chen, Chao: On Bridging Generic and Personalized Federated Learning for Image Classification, ICLR 2022, section 4,
https://arxiv.org/abs/2107.00778. This is the linear version: both heads are linear layers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.weights import Models, Params, params_of
from ktpfl_pipeline.methods.shared.parts import head_names


@dataclass(frozen=True)
class FedRoD(BesideCommon):
    """FedRoD (Chen and Chao, 2022): a global model for balanced classes, and a personal head for the client's classes.

    The model of a client is the new global model with the client's personal head added to the global head. In the
    state, `models` are the personal heads.
    """

    title = "FedRoD"
    needs_head = "linear"

    def round(self, state: CommonState, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Send the global model, train it with the personal head, and average it. Personal heads are not sent."""
        trained, heads = fed.train_together(train_client, self.pairs(state, cohort, fed), t)
        common = fed.average(trained)
        local = {n: with_head(trained[n], heads[n]) for n in cohort}
        return CommonState({**state.models, **heads}, common), RoundReport(local, exchange.both_ways(trained))

    def personal(self, state: CommonState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the global model with each client's personal head added, if the client has one."""
        return {n: with_head(state.common, state.models.get(n, {})) for n in clients}

    def adapt(self, state: CommonState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the global model with each client's personal head added, after training both as in a round."""
        trained, heads = fed.train_together(train_client, self.pairs(state, models, fed), 0, epochs)
        return {n: with_head(trained[n], heads[n]) for n in models}

    def pairs(self, state: CommonState, clients: Iterable[int], fed: Federation) -> tuple[Models, Models]:
        """Return the global model for each client, and the client's personal head, or zeros if it has none yet."""
        zeros: Params = {name: torch.zeros_like(state.common[name]) for name in head_names(fed)}
        heads = {n: state.models.get(n, zeros) for n in clients}
        return dict.fromkeys(heads, state.common), heads


def with_head(model: Params, head: Params) -> Params:
    """Return the model with the personal `head` added to its head."""
    return {**model, **{name: model[name] + tensor for name, tensor in head.items()}}


def train_client(
    space: Workspace, n: int, model: Params, head: Params, t: int, epochs: int | None = None
) -> Outcome[tuple[Params, Params]]:
    """Train the global model and the personal head on the same batches of client n's data; return both.

    The model minimizes the balanced softmax loss CE(g + log D_n,k, y) of its logits g. D_n,k is client n's number of
    training samples of class k. The head, with logits h, minimizes CE(g + h, y), whose gradient does not reach the
    model. Label smoothing applies only to the personal head. In the balanced softmax loss, label smoothing would demand
    probability for classes that the client lacks, and only extreme logits reach it.

    Args:
        model: the global model.
        head: the personal head, with the parameter names of the model's head.
        epochs: the number of epochs; None takes E.
    """
    setting, samples = space.setting, PrivateSamples(space, n, t)
    module = space.module(n, model).train()
    own = space.linear({key.rpartition(".")[2]: tensor for key, tensor in head.items()})
    counts = F.one_hot(samples.labels, setting.classes).sum(dim=0)  # `bincount` would synchronize with a GPU
    prior = counts.to(space.dtype).clamp_min(TINY).log()  # (K,)

    _, layer = space.head(n, module)

    def loss(batch: Tensor) -> Tensor:
        with features(layer, own.in_features) as seen:
            generic = module(samples.inputs(batch))
        personal = generic.detach() + own(seen.pop().detach())
        return F.cross_entropy(generic + prior, samples.labels[batch]) + samples.loss(personal, batch)

    outcome = samples.descend(nn.ModuleList([module, own]), loss, epochs)
    trained = params_of(own)
    return outcome.giving((params_of(module), {key: trained[key.rpartition(".")[2]] for key in head}))
