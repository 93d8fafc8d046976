"""Everything that may stand under an experiment, a sweep or a tuning in conf/, checked before the first node runs.

Each setting is documented where it stands, in `conf/base/parameters_*.yml`. Unknown keys are refused, and an error
names the value, what is allowed and how to mend it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from ktpfl_pipeline.config import checks
from ktpfl_pipeline.core.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]  # far above, float32 overflows
LearningRate = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
SWEEP = "sweep_"
"""What the names of sweeps begin with."""
PLACES = {"workers", "cluster"}
"""Compute settings that say who works and never change a result."""
TUNE = "tune_"
"""What the names of tunings begin with, before that of the experiment; any other section is an experiment."""


class Settings(BaseModel):
    """A group of settings: no key that it does not know, no value of another type, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Private(Settings):
    """Where the clients' images come from."""

    source: str
    classes: list[int] | None = None
    samples: Count | None = None


class Public(Settings):
    """Where the public images come from, and how many a round uses."""

    source: str
    share: Share = 0.3
    batch: Count = 3000
    transport: Literal["float32", "uint8", "indices"] = "uint8"


class Image(Settings):
    """The size that all images of the experiment are brought to."""

    channels: Literal[1, 3]
    size: Literal[28, 32]


class Partition(Settings):
    """Who gets which images."""

    scheme: str
    alpha: Positive = 0.5
    test_share: Share = 0.25
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.1


class Privacy(Settings):
    """Clipping and noise of differentially private local training."""

    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)]
    max_grad_norm: Positive = 1.0
    delta: Share = 1e-5


class Training(Settings):
    """Local SGD on private data."""

    epochs: Annotated[int, Field(ge=0, le=2**31 - 1)] = 20
    batch_size: Count = 128
    learning_rate: LearningRate = 0.01
    privacy: Privacy | None = None


class Distillation(Settings):
    """SGD on the teacher's soft predictions of public data."""

    epochs: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    batch_size: Count = 256
    learning_rate: LearningRate = 0.01
    temperature: Positive = 1.0
    batch_norm: Literal["frozen", "train"] = "frozen"


class Adversaries(Settings):
    """Clients that upload false predictions."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    kind: Literal["random", "flipped", "scaled"] = "flipped"


def _number_of_workers(value: Any) -> Any:
    if value != "auto" and not (type(value) is int and 1 <= value <= 256):
        raise ValueError("should be auto or a whole number from 1 to 256")
    return value


class Compute(Settings):
    """Where and how the arithmetic is done."""

    device: str = "auto"
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    workers: Annotated[Any, BeforeValidator(_number_of_workers)] = 1
    stacked: Count = 1
    cluster: str | None = None
    prediction_batch: Count = 1000
    server_memory: Count = 512


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


class Experiment(Settings):
    """One experiment: everything that all methods of a comparison share, and each method's hyperparameters."""

    seeds: Annotated[list[Seed], BeforeValidator(_as_list), Field(min_length=1)]
    rounds: Count = 30
    evaluate_every: Count = 1
    theorem_samples: Annotated[int, Field(ge=0, le=2**31 - 1)] = 100
    clients: Count = 20
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    on_divergence: Literal["stop", "skip", "restore"] = "stop"
    adversaries: Adversaries = Adversaries()
    architectures: Annotated[list[str], Field(min_length=1)]
    private: Private
    public: Public
    image: Image
    partition: Partition
    training: Training = Training()
    distillation: Distillation = Distillation()
    compute: Compute = Compute()
    hyperparameters: Literal["configured", "tuned"] = "configured"
    methods: dict[str, dict[str, Any]]

    def shared(self) -> dict[str, Any]:
        """Return what all methods' runs have in common and what they depend on, as plain values."""
        return self.model_dump(exclude={"methods": True, "hyperparameters": True, "compute": PLACES})

    def settings(self) -> dict[str, Any]:
        """Return what all methods of a comparison must have in common: `shared`, and where hyperparameters are from."""
        return self.model_dump(exclude={"methods": True, "compute": PLACES})


class Sweep(Settings):
    """One setting of an experiment at several values, each with the same methods."""

    experiment: str
    parameter: str
    values: Annotated[list[Any], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]

    def label(self, value: Any) -> str:
        """Return the setting at a value in short: ``rho=0.3``."""
        return f"{self.parameter.rpartition('.')[2]}={value}"

    def touches(self, method: str) -> bool:
        """Say whether the setting is one that the method's runs depend on: another method's hyperparameter is not."""
        group, _, path = self.parameter.partition(".")
        return group != "methods" or path.partition(".")[0] == method


class Range(Settings):
    """Numbers from `low` to `high`, both included; whole numbers where both are. With `log`, equal by ratio."""

    low: int | float
    high: int | float
    log: bool = False


class Tune(Settings):
    """What is searched for the hyperparameters of an experiment's methods.

    Attributes:
        trials: at most so many candidates for each method.
        seeds: of every candidate's runs.
        spaces: of each method, hyperparameters with a list of values or a `Range`. A method without one is run once.
    """

    trials: Count
    seeds: Annotated[list[Seed], BeforeValidator(_as_list), Field(min_length=1)]
    spaces: dict[str, dict[str, Any]]

    def space(self, method: str) -> dict[str, list[Any] | Range]:
        """Return the method's hyperparameters with what is tried for them; none for a method without a space."""
        return {
            name: values if isinstance(values, list) else Range.model_validate(values)
            for name, values in self.spaces.get(method, {}).items()
        }

    def applied(self, experiment: Experiment) -> Experiment:
        """Return the experiment as its trials run it: with the tuning's seeds, and without the check of Theorem 1."""
        return experiment.model_copy(update={"seeds": self.seeds, "theorem_samples": 0})


def experiments(parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of the sections that are experiments."""
    return [name for name in parameters if not name.startswith((SWEEP, TUNE, "_"))]


def check(parameters: Mapping[str, Any]) -> None:
    """Refuse whatever cannot be in any experiment, sweep or tuning; see `parse`, `parse_sweep` and `parse_tune`."""
    for name, values in parameters.items():
        if not name.startswith((SWEEP, TUNE)):
            parse(name, values)
    for name, values in parameters.items():
        if name.startswith(SWEEP):
            parse_sweep(name, values, parameters)
        elif name.startswith(TUNE):
            parse_tune(name, values, parameters)


def parse(name: str, values: Any) -> Experiment:
    """Return the experiment `name` from its section of the configuration.

    Raises:
        InputError: one sentence for each value that cannot be.
    """
    _refuse_unprintable(name, values)
    if not isinstance(values, Mapping):
        raise InputError(f"{name} is {values!r}; it must be a section with the settings of an experiment.")
    experiment = _checked(Experiment, values, name)
    checks.refuse_repeats(f"{name}.seeds", experiment.seeds, "seed")
    checks.refuse_unknown_names(name, experiment)
    checks.refuse_several_architectures(name, experiment)
    checks.refuse_impossible_privacy(name, experiment)
    if name.startswith(checks.HOMO):
        checks.refuse_unmet_adversaries(name, experiment, [])
    for method, hyperparameters in experiment.methods.items():
        create_method(method, hyperparameters, f"{name}.methods.{method}")
    return experiment


def parse_sweep(name: str, values: Any, parameters: Mapping[str, Any]) -> Sweep:
    """Return the sweep `name` from its section of the configuration, with every point of it checked.

    Args:
        name: the sweep's.
        values: its section.
        parameters: all sections by name, the experiments among them.

    Raises:
        InputError: one sentence for what cannot be.
    """
    from ktpfl_pipeline.methods import METHODS, find

    _refuse_unprintable(name, values)
    if not isinstance(values, Mapping):
        raise InputError(f"{name} is {values!r}; it must be a section with the settings of a sweep.")
    sweep = _checked(Sweep, values, name)
    checks.refuse_unknown(f"{name}.experiment", sweep.experiment, experiments(parameters))
    for method in sweep.methods:
        checks.refuse_unknown_extension(f"{name}.methods", method, METHODS, find)
    checks.refuse_repeats(f"{name}.methods", sweep.methods, "method")
    checks.refuse_repeats(f"{name}.values", sweep.values, "value")
    for point in points(name, sweep, parameters):
        checks.refuse_unmet(sweep.experiment, point, sweep.methods)
    if not any(map(sweep.touches, sweep.methods)):
        raise InputError(
            f"{name}.parameter is {sweep.parameter!r}, which changes none of its methods, {', '.join(sweep.methods)}; "
            f"add {sweep.parameter.split('.')[1]} to {name}.methods."
        )
    return sweep


def points(name: str, sweep: Sweep, parameters: Mapping[str, Any]) -> list[Experiment]:
    """Return the experiment of the sweep `name` at each of its values, in their order.

    Args:
        name: the sweep's.
        sweep: its settings.
        parameters: all sections by name, the experiments among them.

    Raises:
        InputError: if the experiment has no such setting, or the setting cannot have such a value.
    """
    found = []
    for value in sweep.values:
        change = value
        for part in reversed(sweep.parameter.split(".")):
            change = {part: change}
        try:
            found.append(parse(sweep.experiment, _deep_merge(parameters[sweep.experiment], change)))
        except InputError as error:
            raise InputError(f"{name} cannot set {sweep.parameter} to {value!r}: {error}") from None
    return found


def parse_tune(name: str, values: Any, parameters: Mapping[str, Any]) -> Tune:
    """Return the tuning `name` from its section of the configuration, with every value that it may try checked.

    Args:
        name: the tuning's: ``tune_`` and the name of an experiment.
        values: its section.
        parameters: all sections by name, the experiments among them.

    Raises:
        InputError: one sentence for what cannot be.
    """
    _refuse_unprintable(name, values)
    if not isinstance(values, Mapping):
        raise InputError(f"{name} is {values!r}; it must be a section with the settings of a tuning.")
    tune = _checked(Tune, values, name)
    checks.refuse_repeats(f"{name}.seeds", tune.seeds, "seed")
    tuned = name.removeprefix(TUNE)
    checks.refuse_unknown(f"The experiment of {name}", tuned, experiments(parameters))
    configured = parse(tuned, parameters[tuned]).methods
    for method, space in tune.spaces.items():
        checks.refuse_unknown(f"A method of {name}.spaces", method, configured)
        for hyperparameter, tried in space.items():
            where = f"{name}.spaces.{method}.{hyperparameter}"
            for value in _tried(where, tried):
                _refuse_candidate(where, method, {**configured[method], hyperparameter: value}, value)
    return tune


def _tried(where: str, tried: Any) -> list[Any]:
    """Return the values of a list, or the ends of a range."""
    if isinstance(tried, Mapping):
        ends = _checked(Range, tried, where)
        if ends.low >= ends.high:
            raise InputError(f"{where} goes from {ends.low} to {ends.high}; low must be below high.")
        if ends.log and ends.low <= 0:
            raise InputError(f"{where}.low is {ends.low}; with log it must be above 0.")
        return [ends.low, ends.high]
    if not isinstance(tried, list) or not tried:
        raise InputError(f"{where} is {tried!r}; it must be a list of values, or a range {{low: ..., high: ...}}.")
    checks.refuse_repeats(where, tried, "value")
    return tried


def _refuse_candidate(where: str, method: str, hyperparameters: Mapping[str, Any], value: Any) -> None:
    try:
        create_method(method, hyperparameters)
    except InputError as error:
        raise InputError(f"{where} cannot be {value!r}: {error}") from None


def create_method(method: str, hyperparameters: Mapping[str, Any], where: str = "") -> Any:
    """Return the method with its hyperparameters, their types checked.

    Args:
        method: its name in the registry, or its dotted path.
        hyperparameters: what differs from its defaults.
        where: the path to them in the configuration, for the message.
    """
    from ktpfl_pipeline import methods

    model = _hyperparameters(methods.find(method).kind)
    return methods.create(
        method, _checked(model, hyperparameters, where or method).model_dump(include=set(hyperparameters))
    )


@cache
def _hyperparameters(kind: type) -> type[Settings]:
    """Return the model of what may be given to a method, by type: bounds and choices are checked with the method."""
    from ktpfl_pipeline.core.hyperparameters import allowed

    rules = allowed(kind)
    known: dict[str, Any] = {
        entry.name: (rules[entry.name].plain, None if entry.default is MISSING else entry.default)
        for entry in fields(kind)
    }
    return create_model(kind.__name__, __base__=Settings, **known)


def _checked(model: type[Model], values: Mapping[str, Any], where: str) -> Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(" ".join(_sentence(model, where, details) for details in error.errors()[:5])) from None


def _sentence(model: type[BaseModel], where: str, details: Any) -> str:
    """Say in one sentence what is wrong with one value, and what is allowed."""
    path = ".".join([where, *(str(part) for part in details["loc"])])
    if details["type"] == "extra_forbidden":
        parent, _, given = path.rpartition(".")
        known = _known_keys(model, details["loc"][:-1])
        near = difflib.get_close_matches(given, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'no settings'}."
        return f"There is no setting {given!r} in {parent}; {hint}"
    if details["type"] == "missing":
        return f"{path} is missing; give it in conf/ or with --params {path}=..."
    rule = (
        details["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("Value ").removeprefix("List ")
    )
    return f"{path} is {details['input']!r}; it {rule}."


def _known_keys(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        kind: Any = model.model_fields[part].annotation
        model = next(iter(get_args(kind)), kind)  # of a group that may be null, the group
    return list(model.model_fields)


def _refuse_unprintable(name: str, values: Any) -> None:
    """Refuse numbers of thousands of digits: Python would not write them into any message."""
    try:
        repr(values)
    except (ValueError, RecursionError):
        raise InputError(
            f"{name} has a number of more than 4,300 digits, or a value within itself; correct it."
        ) from None


def merged(configured: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configured experiments, sweeps and tunings with the values of ``--params`` in place, at any depth.

    Raises:
        InputError: if ``--params`` speaks of an experiment, a sweep or a tuning that does not exist.
    """
    if odd := [name for name in configured if not isinstance(name, str)]:
        raise InputError(f"A section in conf/ is called {odd[0]!r}, which is not a text; give it a name in letters.")
    result = {name: value for name, value in configured.items() if not name.startswith("_")}  # _: shared YAML blocks
    for name, value in runtime.items():
        if name not in result:
            if near := difflib.get_close_matches(name, result, n=1):
                raise InputError(f"--params {name}=... names no experiment and no sweep; did you mean {near[0]!r}?")
            first = next(iter(experiments(result)), "hetero_digits")
            raise InputError(
                f"--params {name}=... names no experiment and no sweep; write the experiment first, as in "
                f"{first}.{name}=..., with one of {', '.join(result)}."
            )
        result[name] = _deep_merge(result[name], value)
    return result


def _deep_merge(base: Any, change: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(change, Mapping)):
        return change
    return {**base, **{name: _deep_merge(base.get(name), value) for name, value in change.items()}}
