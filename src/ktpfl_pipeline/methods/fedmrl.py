"""FedMRL: each client's model contains a small shared extractor, and two heads read nested parts of fused features.

Yi, Yu, Ren, Wang, Liu, Li: Federated Model Heterogeneous Matryoshka Representation Learning, NeurIPS 2024, Algorithm 1,
https://arxiv.org/abs/2406.00488
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor, nn

from ktpfl_pipeline.core import exchange, rng
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.joint import common_of, projector_name
from ktpfl_pipeline.core.method import Method, PersonalState, RoundReport, SmallCommon
from ktpfl_pipeline.core.weights import Models, Params, params_of, select
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True, eq=False)
class FedMRLState(PersonalState):
    """The state between rounds: each client's extractor, head and projector, in `models`, and the shared model.

    Attributes:
        extractor: the weights of the shared extractor, named as in `joint.Joint`.
        head: the weights of the shared head, which reads d₁ features.
    """

    extractor: Params
    head: Params


@dataclass(frozen=True)
class FedMRL(SmallCommon, Method[FedMRLState]):
    """FedMRL (Yi et al., 2024): shared and own features are fused, and a shared head reads the first fused features.

    Attributes:
        dimension: d₁, the number of shared features; never more than the narrowest architecture has.
    """

    title = "FedMRL"
    exchanges = frozenset({"parameters"})
    needs_head = "linear"

    dimension: Annotated[int, Ge(1)] = 512

    def init(self, fed: Federation) -> FedMRLState:
        """Start from the initial models, with a projector per architecture."""
        architecture = self.architecture(fed)
        dimension = min(self.dimension, *(fed.head(name, "linear").width for name in fed.models()))  # d₁
        own, name = fed.initial_model(architecture), fed.head(architecture, "linear").name
        extractor = {f"common.{key}": value for key, value in own.items() if not key.startswith(f"{name}.")}
        models = initial(fed, list(fed.by_id), architecture, dimension)
        return FedMRLState(models, extractor, common_head.initial(fed, dimension))

    def round(self, state: FedMRLState, cohort: list[int], t: int, fed: Federation) -> tuple[FedMRLState, RoundReport]:
        """Send the shared model, train it as part of each client's model, and average it by numbers of samples."""
        pairs = self.personal(state, cohort, fed), dict.fromkeys(cohort, state.head)
        after_local, heads = fed.train_together(train_client, pairs, t)
        copies: Models = {n: {name: params[name] for name in state.extractor} for n, params in after_local.items()}
        own = {n: {name: params[name] for name in state.models[n]} for n, params in after_local.items()}
        after = FedMRLState({**state.models, **own}, fed.average(copies), fed.average(heads))
        sent: Models = {n: {**copy, **heads[n]} for n, copy in copies.items()}
        return after, RoundReport(after_local, exchange.both_ways(sent))

    def personal(self, state: FedMRLState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own parts with the shared extractor."""
        return {n: {**state.models[n], **state.extractor} for n in clients}

    def adapt(self, state: FedMRLState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return joint models trained as in a round, together with a copy of the shared head.

        A new client with fewer than d₁ fused features trains its joint model without the shared head.
        """
        read = state.head["weight"].shape[1]  # d₁
        wide = {n: params for n, params in models.items() if params["head.weight"].shape[1] >= read}
        together, _ = fed.train_together(train_client, (wide, dict.fromkeys(wide, state.head)), 0, epochs)
        alone = fed.fine_tune({n: params for n, params in models.items() if n not in wide}, epochs)
        return select({**together, **alone}, models)

    def join(self, state: FedMRLState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give new clients the shared extractor in otherwise initial models."""
        common, dimension = common_of(next(iter(state.models.values()))), state.head["weight"].shape[1]
        own_parts = initial(fed, newcomers, common, dimension).items()
        models: Models = {n: {**own, **state.extractor} for n, own in own_parts}
        return given(models, dict.fromkeys(newcomers, state.extractor))


def initial(fed: Federation, clients: Sequence[int], common: str, dimension: int) -> Models:
    """Return the clients' own parts before the first round. Clients of one architecture have equal parts.

    `common` is the architecture of the shared model, and `dimension` is d₁.
    """
    made, place = {}, projector_name(common)
    for architecture in sorted({fed.by_id[n].architecture for n in clients}):
        own, layer = fed.initial_model(architecture), fed.head(architecture, "linear")
        name, width = layer.name, layer.width
        with rng.seeded(rng.derive(fed.seed, "initialisation", "projector", architecture)):
            projector = nn.Linear(dimension + width, width)
        parts = fed.placed(projector)
        renamed = {
            f"head.{key[len(name) + 1 :]}" if key.startswith(f"{name}.") else f"own.{key}": value
            for key, value in own.items()
        }
        made[architecture] = {**renamed, **{f"{place}.{key}": value for key, value in parts.items()}}
    return {n: made[fed.by_id[n].architecture] for n in clients}


def train_client(
    space: Workspace, n: int, params: Params, head: Params, t: int, epochs: int | None = None
) -> Outcome[tuple[Params, Params]]:
    """Train client n's joint model and the shared head on the sum of both heads' cross-entropies.

    The own head reads all fused features, (b, d₂). The shared head reads the first d₁ of them. `epochs` replaces E.
    """
    own = PrivateSamples(space, n, t)
    module, common = space.module(n, params).train(), space.linear(head)
    _, head_of_own = space.head(n, module)
    assert isinstance(head_of_own, nn.Linear)
    cross_entropy = own.cross_entropy(module)

    def loss(batch: Tensor) -> Tensor:
        with features(head_of_own, head_of_own.in_features) as seen:
            fine = cross_entropy(batch)
        return fine + own.loss(common(seen.pop()[:, : common.in_features]), batch)

    outcome = own.descend(nn.ModuleList([module, common]), loss, epochs)
    return outcome.giving((params_of(module), params_of(common)))
