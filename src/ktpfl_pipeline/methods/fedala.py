"""FedALA: each client learns, weight by weight, how much of the global model's last layers to take over.

Zhang, Hua, Wang, Song, Xue, Ma, Guan: FedALA: Adaptive Local Aggregation for Personalized Federated Learning, AAAI
2023, Algorithm 1, https://arxiv.org/abs/2212.01197
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le

from ktpfl_pipeline.core import exchange, rng
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.sgd import batches, gradients_of
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.model_facts import layer_of
from ktpfl_pipeline.core.shares import rounded_up
from ktpfl_pipeline.core.transfer import fetched, sent
from ktpfl_pipeline.core.weights import Models, Params, vector_of


@dataclass(frozen=True, eq=False)
class FedALAState(CommonState):
    """The state between rounds: each client's model, the global model, and each client's last weights W."""

    weights: Models


@dataclass(frozen=True)
class FedALA(BesideCommon):
    """FedALA (Zhang et al., 2023): each client aggregates its own and the global model so that its own loss decreases.

    Attributes:
        layers: p, the number of last layers that are aggregated weight by weight; 1 in the paper. Lower layers are
            copied from the global model.
        share: s, the share of training samples on which W is learned; 0.8 in the paper. The samples are drawn again in
            each round.
        rate: the step size of W; 1 in the paper.
        first_epochs: the epochs in which a client learns W for the first time. Later rounds take one epoch. The paper
            trains W to convergence the first time.
    """

    title = "FedALA"

    layers: Annotated[int, Ge(1)] = 1
    share: Annotated[float, Gt(0), Le(1)] = 0.8
    rate: Annotated[float, Ge(0)] = 1.0
    first_epochs: Annotated[int, Ge(1)] = 10

    def init(self, fed: Federation) -> FedALAState:
        """Start from the initial model, without W."""
        return FedALAState({}, fed.initial_model(fed.architecture), {})

    def round(self, state: FedALAState, cohort: list[int], t: int, fed: Federation) -> tuple[FedALAState, RoundReport]:
        """Send the global model, aggregate it with each client's own model, train, upload, and average."""
        names = last_names(fed.trained_names, fed.facts(fed.architecture).layers, self.layers)
        ones: Params = {name: torch.ones_like(state.common[name]) for name in names}
        calls = {
            n: (state.models[n], state.common, state.weights.get(n, ones), self, n not in state.weights, t)
            for n in cohort
            if n in state.models  # in its first round a client trains the global model
        }
        weights = fed.run("aggregate", learn_weights, calls) if calls else {}
        if weights:
            check_finite("aggregation weights", {n: vector_of(w, names) for n, w in weights.items()})
        starts = {n: aggregated(state.models[n], state.common, w) for n, w in weights.items()}
        trained = fed.train({n: starts.get(n, state.common) for n in cohort}, t)
        common = fed.average(trained)
        after = FedALAState({**state.models, **trained}, common, {**state.weights, **weights})
        mean = fetched([vector_of(w, names).mean() for w in weights.values()])
        metrics = {"aggregation_weight": fmean(mean)} if mean else {}
        return after, RoundReport(trained, exchange.both_ways(trained), metrics=metrics)


def last_names(names: list[str], order: Sequence[str], layers: int) -> list[str]:
    """Return the names of the parameters in the last `layers` layers.

    Args:
        names: the names of all trained parameters.
        order: the names of the layers in the order of the forward pass.
        layers: the number of layers to return, counted among layers with trained parameters.
    """
    owners = {layer_of(name) for name in names}
    last = [layer for layer in order if layer in owners][-layers:]
    return [name for name in names if layer_of(name) in last]


def aggregated(own: Params, common: Params, weights: Params) -> Params:
    """Return the global model, with θ_n + (θ - θ_n) ∘ W for the tensors named in `weights` (Eq. 4)."""
    return {**common, **{name: own[name] + (common[name] - own[name]) * w for name, w in weights.items()}}


def learn_weights(
    space: Workspace, n: int, own: Params, common: Params, weights: Params, method: FedALA, first: bool, t: int
) -> Outcome[Params]:
    """Return W after gradient steps on the loss of the aggregated model (Eq. 5).

    A step is W ← W - η ∇L ∘ (θ - θ_n), clipped to [0, 1].

    Args:
        own: θ_n, the client's model.
        common: θ, the global model.
        weights: W, by the names of the aggregated tensors.
        method: provides the share of samples, the step size and the number of epochs.
        first: whether the client learns W for the first time.
    """
    setting, samples = space.setting, PrivateSamples(space, n, t, "aggregation")
    module, stream = space.module(n, common).train(), setting.stream("aggregation", t, n)
    drawn = torch.randperm(len(samples), generator=stream)[: rounded_up(method.share, len(samples))]
    chosen, counted = sent(drawn, space.device), Counter[str]()
    parameters, cross_entropy = dict(module.named_parameters()), samples.cross_entropy(module)
    with rng.seeded(rng.derive(setting.seed, "aggregation dropout", t, n), space.device):
        for _ in range(method.first_epochs if first else 1):
            for batch in batches(len(chosen), setting.training.batch_size, stream, space.device):
                start = aggregated(own, common, weights)
                with torch.no_grad():
                    for name in weights:
                        parameters[name].copy_(start[name])
                learned = [parameters[name] for name in weights]
                _, slopes = gradients_of(cross_entropy(chosen[batch]), learned)
                counted += space.counted([module], len(batch))
                weights = {
                    name: (w - method.rate * slope * (common[name] - own[name])).clamp(0.0, 1.0)
                    for (name, w), slope in zip(weights.items(), slopes, strict=True)
                }
    return Outcome(weights, samples=counted)
