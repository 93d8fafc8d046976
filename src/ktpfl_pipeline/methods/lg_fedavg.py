"""LG-FedAvg: each client has its own feature extractor, and all clients share one head.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: Think Locally, Act Globally: Federated Learning with
Local and Global Representations, 2020, Algorithm 1, https://arxiv.org/abs/2001.01523. The global part is the last
linear layer, whose input is pooled to a common dimension F by averaging neighboring entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import Method, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Models, Params, select
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True, eq=False)
class CommonHeadState(PersonalState):
    """The state between rounds: each client's model, of which only the extractor is used, and the shared head."""

    head: Params


@dataclass(frozen=True)
class LGFedAvg(Method[Any]):
    """LG-FedAvg (Liang et al., 2020): the feature extractor is personal, the head is shared.

    Attributes:
        dimension: F, the common dimension of the features; 512 as in HtFLlib, the best of four measured values.
    """

    title = "LG-FedAvg"
    exchanges = frozenset({"parameters"})
    needs_head = "biased"

    dimension: Annotated[int, Ge(1)] = 512

    def init(self, fed: Federation) -> CommonHeadState:
        """Start from the initial models and one head."""
        return CommonHeadState(fed.initial_models(), common_head.initial(fed, self.dimension))

    def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> tuple[CommonHeadState, RoundReport]:
        """Send the head, train it together with the clients' extractors, and average it by numbers of samples."""
        starts = select(state.models, cohort), self.heads(state, cohort, fed)
        trained, heads = common_head.train(fed, *starts, t)
        after = CommonHeadState({**state.models, **trained}, fed.average(heads))
        return after, RoundReport(trained, exchange.both_ways(heads))

    def heads(self, state: Any, clients: Iterable[int], fed: Federation) -> Models:
        """Return the head on F features that each of `clients` would use now: the shared head."""
        return dict.fromkeys(clients, state.head)

    def personal(self, state: Any, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own extractors with the head that they would use now."""
        models = select(state.models, clients)
        return common_head.with_heads(fed, models, self.heads(state, models, fed))

    def adapt(self, state: Any, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the clients' extractors after training together with a copy of this head."""
        return common_head.train(fed, models, self.heads(state, models, fed), 0, epochs)[0]

    def join(self, state: Any, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients the shared head; their extractors are the initial ones."""
        models = common_head.with_heads(
            fed, select(fed.initial_models(), newcomers), dict.fromkeys(newcomers, state.head)
        )
        return given(models, dict.fromkeys(newcomers, state.head))
