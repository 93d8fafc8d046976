"""FML: every client trains its own model and a copy of a small common one on each other; the copies are averaged.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: Federated Mutual Learning, 2020, https://arxiv.org/abs/2006.16765
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Params, average, select, wire_bytes


@dataclass(frozen=True, eq=False)
class FMLState(PersonalState):
    """What crosses rounds: each client's model, and the common one."""

    common: Params


@dataclass(frozen=True)
class FML(Personal):
    """Key idea: a small model that everybody trains carries knowledge between models of any kind.

    Attributes:
        common: architecture of the common model.
        alpha: α, how much the own model listens to the labels; the rest to the common model. 0.5 is usual.
        beta: β, the same for the common model, which listens to the own one.
    """

    title = "FML"
    exchanges = frozenset({"parameters"})
    private_data = "its own training rule"

    common: str = "lenet"
    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.5
    beta: Annotated[float, Interval(ge=0, le=1)] = 0.5

    def init(self, fed: Federation) -> FMLState:
        """Start from the common initial models."""
        return FMLState(fed.initial_models(), fed.initial_model(self.common))

    def round(self, state: FMLState, cohort: list[int], t: int, fed: Federation) -> tuple[FMLState, RoundReport]:
        """Send the common model, train both on each other, average the copies by the clients' numbers of images."""
        models = select(state.models, cohort)
        trained, copies = fed.train_mutually(models, state.common, self.common, t, self.alpha, self.beta)
        common = average([copies[n] for n in cohort], fed.data_weights(cohort))
        size = wire_bytes(common)
        traffic = Traffic(parameters_up=size, parameters_down=size)
        return FMLState({**state.models, **trained}, common), RoundReport(trained, dict.fromkeys(cohort, traffic))
