"""Everything that may stand under an experiment in conf/, as pydantic models.

Each setting is documented where it stands, in `conf/base/parameters_*.yml`.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, WrapValidator

from ktpfl_pipeline.config.augmentations import Changes
from ktpfl_pipeline.config.values import (
    Chance,
    Clients,
    Count,
    Epochs,
    LearningRate,
    Names,
    OneOrMore,
    OrWord,
    Positive,
    Seeds,
    Settings,
    Share,
    as_list,
    as_names,
)
from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.training.recipe import BATCH_NORM, BatchNormPolicy

ALL = "all"
"""In the place of a method's name under `compare`: all of the registry that go with the experiment."""
BUT = "-"
"""What the name of a method under `compare` begins with that is left out of `ALL`."""
OPEN_PART, NO_PUBLIC = "open_part", "none"
"""In the place of a public source: a part of the private samples, and no public samples."""
REAL = "real_clients"
"""The private source of an experiment whose clients are real; only Flower runs it (distribution `ktpfl_flower`)."""
RUN_BY_FLOWER = "Real clients are run by Flower: `flwr run flower/app`, with a federation.yml (docs/real_clients.md)."
"""What a command is told that would have run real clients itself."""
PLACES = {"workers", "cluster"}
"""Compute settings that say who works and never change a result."""
REPORTED: dict[str, Any] = {"headline": True, "subject": True}
"""Settings of reports: no run depends on them."""
CHOICE: dict[str, Any] = {"methods": True, "compare": True, "exchange": True, "compute": PLACES, **REPORTED}
"""Settings that say which methods are run, with what, by whom, and what a report leads with: no run depends on them."""


def _as_architectures(value: Any, as_list: Callable[[Any], list[str]]) -> Any:
    return architectures.checked(value) if isinstance(value, dict) else as_list(as_names(value))


Architectures = Annotated[
    list[str],
    Field(min_length=1),
    WrapValidator(_as_architectures),
    PlainSerializer(lambda given: given),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "object"}]}),
]
"""A list of names, or a mapping: see `core.architectures`, which knows what both mean."""


class Private(Settings):
    """Where the clients' images come from."""

    source: str
    classes: Annotated[list[int] | None, OneOrMore] = None
    samples: Count | None = None
    samples_per_client: Count | None = None
    shape: Annotated[Annotated[list[Count], Field(min_length=1, max_length=3)] | None, OneOrMore] = None


class Public(Settings):
    """Where the public images come from, and how many a round uses."""

    source: str = "open_part"
    share: Share = 0.3
    batch: Count = 3000
    transport: Literal["float32", "uint8", "indices"] = "uint8"


def _as_sides(value: Any) -> Any:
    sides = value if isinstance(value, list) and len(value) == 2 else [value]
    if not all(type(side) is int and 1 <= side <= 8192 for side in sides):
        raise ValueError("should be a number of pixels from 1 to 8192, or two in brackets, height and width")
    return sides[0] if len(set(sides)) == 1 else sides


def _rising(window: list[float]) -> list[float]:
    """Check that the second number of a window is the larger one."""
    if not window[0] < window[1]:
        raise ValueError("the first number must be below the second, as in [0, 4095]")
    return window


class Image(Settings):
    """What all images of the experiment, private and public, are brought to."""

    channels: Annotated[int, Field(ge=1, le=4)]
    size: Annotated[Any, BeforeValidator(_as_sides)]
    window: Annotated[list[float], Field(min_length=2, max_length=2), AfterValidator(_rising)] | None = None
    unreadable: Literal["error", "skip"] = "error"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
        return self.channels, height, width


class Text(Settings):
    """How texts become tokens, see `data.sources.tokens`."""

    tokenizer: str = "auto"
    vocabulary: Count = 10_000
    length: Count | None = None


class Partition(Settings):
    """Who gets which images."""

    scheme: str = "dirichlet"
    alpha: Positive = 0.5
    balanced: bool = False
    labels_per_client: Count = 2
    shards_per_client: Count = 2
    sigma: Positive = 2.0
    minimum: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    feature_skew: Literal["none", "rotation", "blur", "colour", "noise"] = "none"
    feature_levels: Annotated[int, Field(ge=2, le=360)] = 4
    test_share: Share = 0.25
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.1


class Privacy(Settings):
    """Clipping and noise of differentially private local training."""

    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)]
    max_grad_norm: Positive = 1.0
    delta: Share = 1e-5


class Schedule(Settings):
    """The learning rate over rounds."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    warm_up: Epochs = 0
    every: Count = 10
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    floor: Chance = 0.0


class Recipe(Settings):
    """How steps are taken."""

    epochs: Epochs
    batch_size: Count
    learning_rate: LearningRate = 0.01
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    weight_decay: LearningRate = 0.0
    optimizer_state: Literal["reset", "kept"] = "reset"
    schedule: Annotated[Schedule, OrWord("schedule")] = Schedule()
    clip: Positive | None = None


class Training(Recipe):
    """Training on private data."""

    epochs: Epochs = 20
    batch_size: Count = 128
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    augmentation: Changes = []
    privacy: Privacy | None = None


class Distillation(Recipe):
    """Training on the teacher's soft predictions of public data."""

    epochs: Epochs = 1
    batch_size: Count = 256
    temperature: Positive = 1.0
    batch_norm: BatchNormPolicy = BATCH_NORM


class Adversaries(Settings):
    """Clients that upload false predictions."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    kind: Literal["random", "flipped", "scaled"] = "flipped"


class Knowledge(Settings):
    """How predictions travel."""

    encoding: Literal["float32", "float16", "uint8", "sign", "top_k"] = "float32"
    k: Count = 3
    cache: Epochs = 0
    select: Annotated[float, Field(gt=0, le=1)] = 1.0


def _as_epochs(value: Any) -> Any:
    listed = as_list(as_names(value))
    if isinstance(listed, list):
        given = [int(each) if isinstance(each, str) and each.isdecimal() else each for each in listed]
        if all(each == "E" or (type(each) is int and 0 <= each <= 2**31 - 1) for each in given):
            return given
    raise ValueError("should be whole numbers from 0, or E for training.epochs")


class Evaluation(Settings):
    """What is measured of every method's models beside their accuracy as they are."""

    adapt_epochs: Annotated[list[int | Literal["E"]], BeforeValidator(_as_epochs)] = [0, 1, "E"]
    global_samples: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1000
    closing_round: bool = False
    patience: Count | None = None

    def epochs(self, of_round: int) -> tuple[int, ...]:
        """Return the numbers of further epochs above 0, ascending, where E is that `of_round`."""
        return tuple(sorted({of_round if each == "E" else int(each) for each in self.adapt_epochs} - {0}))


class Stragglers(Settings):
    """Clients whose uploads arrive late."""

    share: Chance = 0.0
    delay: Count = 1


class Budgets(Settings):
    """Clients that cannot afford all epochs of local training."""

    share: Chance = 0.0
    epochs: Annotated[float, Field(gt=0, le=1)] = 0.25


def _number_of_workers(value: Any) -> Any:
    if value != "auto" and not (type(value) is int and 1 <= value <= 256):
        raise ValueError("should be auto or a whole number from 1 to 256")
    return value


class Compute(Settings):
    """Where and how the arithmetic is done."""

    device: str = "auto"
    dtype: Literal["float32", "tf32", "float64", "bfloat16", "auto", "auto:bfloat16"] = "float32"
    memory_format: Literal["contiguous", "channels_last", "auto"] = "contiguous"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    workers: Annotated[Any, BeforeValidator(_number_of_workers)] = 1
    cluster: str | None = None
    prediction_batch: Count = 1000
    server_memory: Count = 512


class Experiment(Settings):
    """One experiment: everything that all methods of a comparison share, and each method's hyperparameters."""

    seeds: Seeds = [0]
    rounds: Count = 30
    evaluate_every: Count = 1
    evaluate_last: Count = 1
    evaluation: Evaluation = Evaluation()
    theorem_samples: Annotated[int, Field(ge=0, le=2**31 - 1)] = 100
    clients: Clients | None = 20  # None: all of the source
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    on_divergence: Literal["stop", "skip", "restore"] = "stop"
    adversaries: Adversaries = Adversaries()
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    stragglers: Stragglers = Stragglers()
    budgets: Budgets = Budgets()
    newcomers: Annotated[float, Field(ge=0, lt=1)] = 0.0
    architectures: Architectures = ["mlp"]
    pretrained: dict[str, str] = {}
    private: Private
    public: Public = Public()
    image: Image | None = None  # None: inputs stay as they are
    text: Text = Text()
    partition: Partition = Partition()
    training: Training = Training()
    distillation: Distillation = Distillation()
    knowledge: Annotated[Knowledge, OrWord("knowledge")] = Knowledge()
    compute: Compute = Compute()
    hyperparameters: Literal["configured", "tuned"] = "configured"
    compare: Names = [ALL]
    exchange: Literal["predictions", "parameters"] = "predictions"
    headline: Literal["accuracy", "balanced_accuracy", "macro_f1", "auc"] = "accuracy"
    subject: str | None = None
    methods: dict[str, dict[str, Any]] = {}

    @property
    def named(self) -> list[str]:
        """The methods that ``compare`` names, without `ALL` and without those that it leaves out."""
        return [each for each in self.compare if each != ALL and not each.startswith(BUT)]

    @property
    def left_out(self) -> list[str]:
        """The methods that ``compare`` leaves out of `ALL`: ``[all, -fedkd]``."""
        return [each.removeprefix(BUT) for each in self.compare if each.startswith(BUT)]

    def models(self) -> list[str]:
        """Return the names of the architectures that clients have, each once."""
        return architectures.names(self.architectures)

    def private_samples(self, available: int) -> int:
        """Return how many private samples are drawn from a source that has `available`, an open part among them.

        With `private.samples_per_client` these are that many for each client, or all where the source has fewer.
        """
        if self.private.samples_per_client is None:
            return available if self.private.samples is None else self.private.samples
        clients = self.private.samples_per_client * (self.clients or 1)
        opened = self.public.share if self.public.source == OPEN_PART else 0.0
        return min(available, math.ceil(clients / (1 - opened)))

    def of_data(self) -> dict[str, Any]:
        """Return what the data of the federation depend on, as plain values."""
        public = {"source": True, "share": True}
        own = dict.fromkeys(("seeds", "clients", "pretrained", "private", "image", "text", "partition"), True)
        return self.model_dump(include={**own, "public": public})

    def shared(self) -> dict[str, Any]:
        """Return what all methods' runs have in common and what they depend on, as plain values."""
        return self.model_dump(exclude=CHOICE | {"hyperparameters": True})

    def settings(self) -> dict[str, Any]:
        """Return what all methods of a comparison must have in common: `shared`, and where hyperparameters are from."""
        return self.model_dump(exclude=CHOICE)
