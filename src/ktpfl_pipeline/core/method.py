"""The contract of a method: three functions on a frozen dataclass whose fields are the hyperparameters.

One function runs a whole round, because rounds differ much: KT-pFL exchanges twice in a round, and other methods update
the server after each client. A function that calls shared operations also reads like the paper's pseudocode.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args, get_type_hints

from annotated_types import Ge, MaxLen
from torch import Tensor

from ktpfl_pipeline.core import joining, validation
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Models, Params, select


@dataclass(frozen=True, eq=False)
class RoundReport:
    """The report of a round to the engine, in addition to the new state."""

    after_local: Models  #: the cohort's models after local training, before any knowledge came back
    traffic: dict[int, Traffic]  #: bytes of each cohort member
    #: (N, N) weights of each client's teachers after the round, row = student; None if the method has no such matrix
    coefficients: Tensor | None = None
    #: the method's own numbers by name, which are shown in MLflow, the history and a table of the report
    metrics: Mapping[str, float] = field(default_factory=dict)


State = TypeVar("State")


def is_decorated(kind: type) -> bool:
    """Return whether a class itself, and not only a base of it, is a dataclass."""
    return "__dataclass_fields__" in vars(kind)


Exchanged = Literal["predictions", "parameters", "prototypes", "similarities", "coefficients"]
"""The categories of what clients and the server may exchange."""


@dataclass(frozen=True)
class Method(ABC, Generic[State]):
    """A federated method: a frozen dataclass of its hyperparameters, whose bounds are in their annotations.

    The state is a frozen dataclass of models and tensors, which checkpoints store. The class attributes declare
    properties of the method for pipelines, reports, and the checks of privacy and adversaries.
    """

    title: ClassVar[Annotated[str, MaxLen(100)]]  #: the method's name in tables and figures
    #: the categories that clients and the server exchange: some of ``predictions``, ``parameters``, ``prototypes``,
    #: ``similarities`` and ``coefficients``; empty for local-only training
    exchanges: ClassVar[frozenset[Exchanged]] = frozenset({"predictions"})
    one_architecture: ClassVar[bool] = False  #: whether all clients need the same architecture
    #: whether the method fits anything on validation samples, which other methods use only for selection
    fits_validation: ClassVar[bool] = False
    needs_validation: ClassVar[bool] = False  #: whether every client needs validation samples
    #: whether the method defines the step of local training itself (`client/rules.py`), so that the optimizer of
    #: `training` cannot be set
    own_step: ClassVar[bool] = False
    own_knowledge: ClassVar[frozenset[str]] = frozenset()  #: settings of `knowledge` that the method decides
    #: whether clients predict with models that are fine-tuned, or averaged from trained ones, for evaluation: reports
    #: mark the method, because its accuracy after transfer is measured after local training
    trained_last: ClassVar[bool] = False
    #: settings that do not change the method's results, as paths such as ``public.batch``; not inherited, because a
    #: derived method may use them
    ignores: ClassVar[frozenset[str]] = frozenset()
    #: whether the method needs public samples although no client predicts them
    needs_public: ClassVar[bool] = False
    #: whether private samples are only trained on, once a round, and evaluated, so that the ε of private training
    #: covers the method; not inherited. Operations that ε does not cover are refused whatever the method declares
    covered: ClassVar[bool] = False
    #: the method's requirement on a model's head. Empty: none. ``layer``: a single layer makes the logits. ``linear``:
    #: this layer is linear. ``biased``: this layer is linear and has a bias
    needs_head: ClassVar[Literal["", "layer", "linear", "biased"]] = ""
    #: whether a round depends on the number of rounds of the whole run, apart from learning rates
    follows_rounds: ClassVar[bool] = False
    #: the method's name in the tables of the KT-pFL paper; None if they do not contain the method
    paper_name: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        """Do not inherit `covered`."""
        cls.covered = vars(cls).get("covered", False)

    def __post_init__(self) -> None:
        """Check the hyperparameters."""
        validation.check(self, type(self).__name__)

    @classmethod
    def check_class(cls, path: str) -> None:
        """Check the attributes of a class that was found at `path`; InputError names one that is not allowed.

        The class needs its own title, because an inherited title would name another method. Without the decorator
        @dataclass its hyperparameters could not be set, and would not be part of a run's key.
        """
        if not vars(cls).get("title"):
            raise InputError(f'{path} has no title: write title = "..." in the class, for tables and figures.')
        attributes = get_type_hints(Method, include_extras=True)
        for kind in cls.__mro__[: cls.__mro__.index(Method)]:
            hints = {} if is_decorated(kind) else get_annotations(kind)
            own = [name for name, hint in hints.items() if name not in attributes and "ClassVar" not in str(hint)]
            if own or ("__init__" in vars(kind) and not is_decorated(kind)):
                raise InputError(
                    f"{path}: {kind.__name__} is not a dataclass, so {own[0] if own else 'what __init__ takes'} cannot "
                    "be set: write @dataclass(frozen=True) above the class, and make each hyperparameter a field."
                )
        for name, hint in attributes.items():
            rule = validation.Rule.of(get_args(hint)[0])
            validation.value_of(rule, getattr(cls, name, None), f"{path}: the class attribute {name}")

    @classmethod
    def depends_on(cls, path: str) -> bool:
        """Return whether a setting of the experiment can change the method's results.

        `path` is the path of the setting, such as ``distillation.epochs``, or of a group, such as ``distillation``.
        """
        ignored = [*vars(cls).get("ignores", ()), *(["knowledge"] if "predictions" not in cls.exchanges else [])]
        return not any(path == name or path.startswith(f"{name}.") for name in ignored)

    def architectures(self, setting: Setting) -> list[str]:
        """Return the names of the architectures that the method trains."""
        return sorted(setting.models())

    def misfits(self, setting: Setting) -> dict[str, str]:
        """Return the architectures that the method would train but cannot use, each with the reason."""
        if not self.needs_head:
            return {}
        found = {name: setting.facts(name).lacks(self.needs_head) for name in self.architectures(setting)}
        return {name: reason for name, reason in found.items() if reason}

    @abstractmethod
    def init(self, fed: Federation) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def round(self, state: State, cohort: list[int], t: int, fed: Federation) -> tuple[State, RoundReport]:
        """Return the state after round t with the clients in `cohort`, and the report; do not change `state`.

        A client outside the cohort keeps its model, and its row and column of any server matrix, bit for bit. (Its
        column may change only if the cohort weighs models of this client that the server has stored.)
        """

    @abstractmethod
    def personal(self, state: State, clients: Iterable[int], fed: Federation) -> Models:
        """Return the model that each of `clients` would use now, on which the headline accuracy is measured.

        A client that was never in a cohort uses the model that the server would send it now, or the initial model if
        the server has none for it.
        """

    def untuned(self, state: State, personal: Models, fed: Federation) -> Models:
        """Return the `personal` models without the method's own fine-tuning; adaptation starts from these."""
        return personal

    def join(self, state: State, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Return the models with which newcomers start, clients that join after training, and the bytes of joining.

        A method may override this. If predictions are exchanged, the initial models of newcomers learn from the
        average of all clients' soft predictions. If models of one architecture are exchanged, newcomers get the average
        of all clients' models. Otherwise they keep their initial models.

        Args:
            state: the state after the last round, which has nothing about the newcomers.
            there: the models of the trained clients, as `personal` returns them.
            newcomers: the ids of the newcomers.
            fed: the federation of trained clients and newcomers. Its distillation has as many epochs as all rounds
                together.
        """
        if "predictions" in self.exchanges:
            return joining.taught(there, newcomers, fed, lambda n, logits: self.consensus(logits, fed))
        if self.one_architecture and "parameters" in self.exchanges:
            return joining.given(dict.fromkeys(newcomers, fed.average(there)))
        return Joined(select(fed.initial_models(), newcomers))

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the common teacher of newcomers, (B, K), from the trained clients' logits, (N, B, K)."""
        return soft_predictions(logits, fed.distillation.temperature).mean(dim=0)

    def adapt(self, state: State, models: Models, epochs: int, fed: Federation) -> Models:
        """Return models after `epochs` of the method's own local training, to be evaluated and discarded.

        All methods follow one rule. A client trains the same parameters as in a round, on the losses of its own labels,
        with one step per mini-batch. Terms of the loss that use what others sent (prototypes, anchors, other models'
        predictions, generated features) are off, because they would transfer more knowledge. So most methods train
        the client's model by plain local training. A method whose clients combine separately trained parts into the
        model that they use overrides this (docs/fair_comparisons.md).

        Args:
            state: the state from which the models were made.
            models: the models that `untuned` or `join` returned, by client.
            epochs: passes over the training split, the same for every client.
            fed: the federation of these clients; shuffles are those of round 0, as in `Federation.fine_tune`.
        """
        return fed.fine_tune(models, epochs)

    def settle(self, state: State, models: Models, epochs: int, fed: Federation) -> Models:
        """Return newcomers' `models` after `epochs` of local training, by `adapt`; they are evaluated and discarded."""
        return self.adapt(state, models, epochs, fed)


@dataclass(frozen=True, eq=False)
class PersonalState:
    """The state between rounds of methods whose clients keep their own models.

    `models` has each client's own model. In methods whose server sends never-sampled clients another model than the
    initial one (`Personal.sent`), a client has an entry only after its first round.
    """

    models: Models


PersonalRound = tuple[PersonalState, RoundReport]
"""The result of a round of methods whose clients keep their own models."""


class Personal(Method[Any]):
    """Base of methods with `PersonalState`: they start from initial models, and a client uses its own model."""

    def init(self, fed: Federation) -> PersonalState:
        """Start from the common initial models."""
        return PersonalState(fed.initial_models())

    def personal(self, state: Any, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own models; for never-sampled clients, the model that the server would send."""
        asked = list(clients)
        newcomers = [n for n in asked if n not in state.models]
        sent = self.sent(state, newcomers, fed) if newcomers else {}
        return select({**state.models, **sent}, asked)

    def sent(self, state: Any, clients: list[int], fed: Federation) -> Models:
        """Return the models that the server would send to the never-sampled `clients` now: the initial models."""
        return select(fed.initial_models(), clients)


class PersonalParameters(Personal):
    """Base of methods whose clients have one architecture, exchange models and keep their own."""

    exchanges = frozenset({"parameters"})
    one_architecture = True

    def init(self, fed: Federation) -> PersonalState:
        """Start without models: each client has its own after its first round."""
        fed.common_models()  # refuses several architectures
        return PersonalState({})

    def late(self, state: Any, cohort: list[int]) -> list[int]:
        """Return the cohort members without a model yet; none in the run's first round, when no client has a model."""
        return [n for n in cohort if n not in state.models] if state.models else []


@dataclass(frozen=True, eq=False)
class CommonState(PersonalState):
    """The state between rounds: clients' own models, as in `PersonalState`, and the common one."""

    common: Params


class BesideCommon(PersonalParameters):
    """Base of methods with `CommonState`: a client without its own model is sent the common one."""

    def init(self, fed: Federation) -> CommonState:
        """Start from the common initial model."""
        return CommonState({}, fed.initial_model(fed.architecture))

    def sent(self, state: Any, clients: list[int], fed: Federation) -> Models:
        """Return the common model."""
        return dict.fromkeys(clients, state.common)

    def join(self, state: Any, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give newcomers the common model."""
        return joining.given(dict.fromkeys(newcomers, state.common))


@dataclass(frozen=True, eq=False)
class SharedState:
    """The state between rounds of methods with one model for all clients."""

    model: Params


class Shared(Method[Any]):
    """Base of methods with `SharedState`: they start from one initial model, and all clients use it."""

    exchanges = frozenset({"parameters"})
    one_architecture = True

    def init(self, fed: Federation) -> SharedState:
        """Start from the common initial model."""
        return SharedState(fed.initial_model(fed.architecture))

    def personal(self, state: Any, clients: Iterable[int], fed: Federation) -> Models:
        """Return the common model for each client."""
        return dict.fromkeys(clients, state.model)

    def join(self, state: Any, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give newcomers the common model."""
        return joining.given(dict.fromkeys(newcomers, state.model))


@dataclass(frozen=True)
class FineTuned:
    """Base of methods that fine-tune a copy of each client's model before evaluation.

    The copy is evaluated and discarded, so rounds are those of the method without fine-tuning. This class comes before
    that method among the bases of a class.

    Attributes:
        epochs: epochs of fine-tuning; None means E, as in a round of local training.
    """

    trained_last: ClassVar[bool] = True
    epochs: Annotated[int | None, Ge(0)] = None

    def personal(self, state: Any, clients: Iterable[int], fed: Federation) -> Models:
        """Return copies of the method's models, fine-tuned on the clients' training data."""
        models: Models = super().personal(state, clients, fed)  # type: ignore[misc]
        return fed.fine_tune(models, self.epochs)

    def untuned(self, state: Any, personal: Models, fed: Federation) -> Models:
        """Return the method's models before fine-tuning."""
        models: Models = super().personal(state, personal, fed)  # type: ignore[misc]
        return models

    def settle(self, state: Any, models: Models, epochs: int, fed: Federation) -> Models:
        """Return newcomers' models fine-tuned for `epochs` epochs; with 0 for as many as other clients' models."""
        return fed.fine_tune(models, epochs or self.epochs)


@dataclass(frozen=True)
class SmallCommon:
    """Base of methods whose clients train a small common model and their own; it must be the first base class.

    Attributes:
        common: architecture of the common model; None takes the smallest of the clients'.
    """

    common: str | None = None

    def architecture(self, setting: Setting) -> str:
        """Return the name of the common model's architecture."""
        return self.common or setting.smallest_architecture

    def architectures(self, setting: Setting) -> list[str]:
        """Return the names of the clients' architectures and of the common model's."""
        return sorted({*setting.models(), self.architecture(setting)})
