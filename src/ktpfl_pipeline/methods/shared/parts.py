"""Parts of a model: its head and its body, and methods whose clients share one part and keep the other."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import CommonState, PersonalParameters, RoundReport
from ktpfl_pipeline.core.weights import Models, Params


def head_names(fed: Federation) -> list[str]:
    """Return the names of the parameters of the head, the layer that computes the logits.

    Raises:
        InputError: if no layer of the architecture computes the logits.
    """
    layer = fed.head(fed.architecture).name
    return [name for name in fed.trained_names if name.startswith(f"{layer}.")]


def mask(fed: Federation, names: Iterable[str]) -> Tensor:
    """Return a mask of the vector of trained weights, (d,): 1 for the tensors called `names`, 0 for all others."""
    model, chosen = fed.initial_model(fed.architecture), set(names)
    return torch.cat([torch.full_like(model[name].flatten(), name in chosen) for name in fed.trained_names])


class PartlyShared(PersonalParameters):
    """Base of methods whose clients share one part of the model; the other part stays on the client.

    The server averages the shared part by numbers of samples. The evaluated model is the new shared part with the
    client's own part, before further training. The own part of a client that never took part has its initial values.
    In the state, `models` have both parts, but only the clients' own parts are used.
    """

    @abstractmethod
    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of the tensors that stay on the client."""

    def initial(self, fed: Federation) -> Params:
        """Return the model from which every client starts."""
        return fed.initial_model(fed.architecture)

    def init(self, fed: Federation) -> CommonState:
        """Start from the initial model."""
        own, model = set(self.own_names(fed)), self.initial(fed)
        return CommonState({}, {name: model[name] for name in model if name not in own})

    def sent(self, state: CommonState, clients: list[int], fed: Federation) -> Models:
        """Return the initial model, of which never-sampled clients use their own part."""
        return dict.fromkeys(clients, self.initial(fed))

    def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Send the shared part, train, upload and average it."""
        trained = self.train(self.personal(state, cohort, fed), t, fed)
        parts: Models = {n: self.uploaded(trained[n], state.common) for n in cohort}
        after = CommonState({**state.models, **trained}, fed.average(parts))
        return after, RoundReport(trained, exchange.both_ways(parts))

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return the models after local training."""
        return fed.train(models, t)

    def uploaded(self, trained: Params, common: Params) -> Params:
        """Return what a client uploads of its trained model: the tensors of the shared part `common`."""
        return {name: trained[name] for name in common}

    def personal(self, state: CommonState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the shared part with each client's own part."""
        return {n: {**own, **state.common} for n, own in super().personal(state, clients, fed).items()}

    def join(self, state: CommonState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients the shared part; their own part has its initial values."""
        return given(self.personal(state, newcomers, fed), dict.fromkeys(newcomers, state.common))
