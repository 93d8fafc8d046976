"""FedRoD: one body with two heads, one that all share and one that each client adds to it.

Chen, Chao: On Bridging Generic and Personalized Federated Learning for Image Classification, ICLR 2022, section 4,
https://arxiv.org/abs/2107.00778. The linear version; the heads are linear layers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.weights import Models, Params, params_of
from ktpfl_pipeline.methods.shared.parts import head_names


@dataclass(frozen=True)
class FedRoD(BesideCommon):
    """Key idea: the common model is trained as if classes were balanced; a head of one's own fits one's labels.

    A client's model is the new common one with its own head added to the common head: both are linear. What a client
    keeps, `models` of the state, is its head.
    """

    title = "FedRoD"
    private_data = "its own training rule"
    needs_head = "linear"

    def round(self, state: CommonState, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Send the common model, train it with the personal head, upload and average it; personal heads stay."""
        before = {n: (state.common, self.head(state, n, fed)) for n in cohort}
        calls = {n: (*pair, t) for n, pair in before.items()}
        pairs = fed.run_training("train", train_client, calls, before, uses="trains toward balanced classes")
        trained = {n: model for n, (model, _) in pairs.items()}
        heads = {n: head for n, (_, head) in pairs.items()}
        common = fed.average(trained)
        local = {n: with_head(trained[n], heads[n]) for n in cohort}
        return CommonState({**state.models, **heads}, common), RoundReport(local, exchange.both_ways(trained))

    def personal(self, state: CommonState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the common model with each client's own head added, and as it is for a client that has none yet."""
        return {n: with_head(state.common, state.models.get(n, {})) for n in clients}

    def adapt(self, state: CommonState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the common model and each client's own head after both were trained as in a round, added up."""
        before = {n: (state.common, self.head(state, n, fed)) for n in models}
        found = fed.run_adaptation(train_client, {n: (*pair, 0, epochs) for n, pair in before.items()}, before)
        return {n: with_head(*pair) for n, pair in found.items()}

    def head(self, state: CommonState, n: int, fed: Federation) -> Params:
        """Return client n's own head, zeros where it has none yet."""
        return state.models.get(n) or {name: torch.zeros_like(state.common[name]) for name in head_names(fed)}


def with_head(model: Params, head: Params) -> Params:
    """Return the model with a head added to its own."""
    return {**model, **{name: model[name] + tensor for name, tensor in head.items()}}


def train_client(
    space: Workspace, n: int, model: Params, head: Params, t: int, epochs: int | None = None
) -> Outcome[tuple[Params, Params]]:
    """Train both for E epochs, or `epochs`, on the same batches of client n's data; return both.

    The model descends the balanced softmax loss, CE(g + log D_n,k, y) of its logits g, where D_n,k is how many training
    samples of class k the client has; the head h descends CE(g + h, y), whose gradient does not reach the model. Label
    smoothing applies to the client's own head only: in the balanced softmax it would ask for classes that the client
    does not have, and only a logit far above all others gives them a share against their prior.

    Arguments of its own:
        model: the common model.
        head: the personal head, by the names of the model's.
    """
    setting, samples = space.setting, PrivateSamples(space, n, t)
    module = space.module(n, model).train()
    own = space.linear({key.rpartition(".")[2]: tensor for key, tensor in head.items()})
    counts = F.one_hot(samples.labels, setting.classes).sum(dim=0)  # `bincount` would wait for a GPU
    prior = counts.to(space.dtype).clamp_min(TINY).log()  # (K,)

    _, layer = space.head(n, module)

    def loss(batch: Tensor) -> Tensor:
        entering: list[Tensor] = []  # what enters the model's head
        with layer.register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0])):
            generic = module(samples.inputs(batch))
        personal = generic.detach() + own(entering.pop().detach().to(space.dtype))
        return F.cross_entropy(generic + prior, samples.labels[batch]) + samples.loss(personal, batch)

    value = samples.descend(nn.ModuleList([module, own]), loss, epochs)
    trained = params_of(own)
    return Outcome((params_of(module), {key: trained[key.rpartition(".")[2]] for key in head}), value)
