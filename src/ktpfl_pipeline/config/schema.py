"""The settings of an experiment: a section of conf/. Groups that other layers read too are in their `settings`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.metrics import Leading
from ktpfl_pipeline.core.settings import (
    EXECUTORS,
    ROUNDS,
    Adversaries,
    Budgets,
    Compute,
    Distillation,
    Knowledge,
    LocalTraining,
    OnDivergence,
    PublicTransport,
    Reliability,
    Stragglers,
)
from ktpfl_pipeline.core.validation import (
    Count,
    Distinct,
    Fraction,
    Natural,
    Part,
    Reads,
    Section,
    Seed,
    Share,
    plain,
    spelt_out,
)
from ktpfl_pipeline.data.settings import Partition, Text

ALL = "all"
"""Under `compare`, in place of a method's name: all methods of the registry that fit the experiment."""
BUT = "-"
"""The prefix of a method under `compare` that is left out of `ALL`."""
OPEN_PART, NO_PUBLIC = "open_part", "none"
"""In place of a public source: a part of the private samples, and no public samples."""
REAL = "real_clients"
"""The private source of an experiment with real clients, which only Flower runs (distribution `ktpfl_flower`)."""
RUN_BY_FLOWER = "Real clients are run by Flower: `flwr run flower/app`, with a federation.yml (docs/real_clients.md)."
PLACES = ("executor",)
"""Settings of `compute` that say where clients are computed and never change a result."""
REPLACED = {
    "flower": RUN_BY_FLOWER,
    **dict.fromkeys(("workers", "cluster"), f"Set compute.executor, for example to {EXECUTORS}."),
}
"""Settings of `compute` that were removed, and what replaces them."""
REPORTED = ("headline", "subject")
"""Settings of reports; no run depends on them."""
CHOICE = ("methods", "compare", "exchange", *REPORTED)
"""Settings that say which methods are run and what a report leads with; no run of a method depends on them."""


def one_or_more(value: Any) -> Any:
    """Return a list as it is, and a single value as a list of one."""
    return [value] if isinstance(value, str | int | float) else value


def joined(value: Any) -> Any:
    """Return the parts of a string that are joined with +, because Kedro splits --params at commas; else the value."""
    return one_or_more(value.split("+") if isinstance(value, str) else value)


def _integers(value: Any) -> Any:
    parts = value.split("+") if isinstance(value, str) else []
    return [int(part) for part in parts] if parts and all(map(str.isdecimal, parts)) else one_or_more(value)


def _epochs(value: Any) -> Any:
    items = joined(value)
    if isinstance(items, list):
        found = [int(each) if isinstance(each, str) and each.isdecimal() else each for each in items]
        if all(each == "E" or (type(each) is int and 0 <= each <= 2**31 - 1) for each in found):
            return found
    raise ValueError("a list of integers of at least 0, or E for training.epochs")


def _sides(value: Any) -> Any:
    sides = value if isinstance(value, list) and len(value) == 2 else [value]
    if not all(type(side) is int and 1 <= side <= 8192 for side in sides):
        raise ValueError("a number of pixels from 1 to 8192, or two in brackets, height and width")
    return sides[0] if len(set(sides)) == 1 else sides


def _window(value: Any) -> Any:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(each) in (int, float) for each in value)
    if value is not None and not (numbers and -math.inf < value[0] < value[1] < math.inf):
        raise ValueError("two numbers in brackets, the first below the second, as in [0, 4095], or null")
    return value


def _architectures(value: Any) -> Any:
    return architectures.checked(value) if isinstance(value, dict) else joined(value)


Clients = Annotated[int, Ge(1), Le(100_000)]
"""More clients do not fit in one process; the bound is checked before anything is made for each of them."""
Seeds = Annotated[list[Seed], Reads(_integers), MinLen(1), Distinct()]
Names = Annotated[list[str], Reads(joined), MinLen(1), Distinct()]
Architectures = Annotated[
    list[str] | dict[str, Any],
    Reads(_architectures, "a list with at least one name, or a mapping such as {lenet: 10, mlp: 10}"),
    MinLen(1),
]
AdaptEpochs = Annotated[Any, Reads(_epochs, "a list of integers, or E for training.epochs")]
Exchange = Literal["predictions", "parameters"]
Headline = Literal["accuracy", Leading]


@dataclass(frozen=True)
class Private:
    """Samples that belong to the clients.

    Attributes:
        source: ``digits``, ``mnist``, ``fashion_mnist``, ``emnist:<split>``, ``cifar10``, ``cifar100``,
            ``folder:<folder>``, or ``npz:<file>``, ``clients:<folder>``, ``leaf:<path>``, ``table:<file.csv>`` and
            ``text:<file.csv>``, which may name the owner of each sample.
        classes: keep only these labels, renumbered from 0; null keeps all.
        samples: how many samples to draw, by class, the same for every seed; null keeps all.
        samples_per_client: the same as a multiple of the number of clients, after the open part is taken off; all
            samples if the source has fewer.
        shape: the shape of one sample whose values are stored as a list, such as [1, 28, 28]; null keeps the shape.
    """

    source: str
    classes: Annotated[list[int] | None, Reads(one_or_more)] = None
    samples: Count | None = None
    samples_per_client: Count | None = None
    shape: Annotated[list[Count] | None, Reads(one_or_more), MinLen(1), MaxLen(3)] = None


@dataclass(frozen=True)
class Public:
    """Unlabeled samples that all clients see.

    Attributes:
        source: ``open_part``: a part of the private samples, split off before partitioning; ``included``: the public
            samples of the private source; ``none``: no public samples, for methods that need none. Or any source of
            `private.source`.
        share: the share of the private samples that becomes public; only with ``open_part``.
        batch: |D_r|, public samples per round, drawn in each round.
        transport: how the batch reaches a client, for the counted bytes only: ``uint8`` or ``float32`` pixels, or
            ``indices`` into a copy that every client holds.
    """

    source: str = OPEN_PART
    share: Share = 0.3
    batch: Count = 3000
    transport: PublicTransport = "uint8"


@dataclass(frozen=True)
class Image:
    """Format of all images, private and public.

    Attributes:
        channels: 1 to 4.
        size: pixels per side, or [height, width].
        window: for gray image files with more than 8 bits, the values that become black and white, such as [0, 4095].
        unreadable: ``error``: list all image files that cannot be read; ``skip``: leave them out and warn.
    """

    channels: Annotated[int, Ge(1), Le(4)]
    size: Annotated[Any, Reads(_sides, "pixels from 1 to 8192, or two in brackets")]
    window: Annotated[Any, Reads(_window, "two numbers in brackets, or null")] = None
    unreadable: Literal["error", "skip"] = "error"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
        return self.channels, height, width


@dataclass(frozen=True)
class Evaluation:
    """What is measured in addition to the accuracy of the clients' models before adaptation.

    Attributes:
        adapt_epochs: epochs of further local training after which every method's models are evaluated too, in the last
            five evaluations; the adapted models are discarded. E is `training.epochs`; 0 is always evaluated.
        global_samples: test samples of all clients, at most, on which every model is evaluated at the end.
        closing_round: whether all clients take part in the last round although `participation` is below 1.
        patience: early stopping, the same for every method. A run ends after this number of evaluations in a row
            without a higher mean validation accuracy, and the best round counts. null: all rounds are run, and the last
            five evaluations count.
    """

    adapt_epochs: AdaptEpochs = field(default_factory=lambda: [0, 1, "E"])
    global_samples: Natural = 1000
    closing_round: bool = False
    patience: Count | None = None

    def epochs(self, of_round: int) -> tuple[int, ...]:
        """Return the numbers of further epochs above 0, ascending, where E is `of_round`."""
        return tuple(sorted({of_round if each == "E" else int(each) for each in self.adapt_epochs} - {0}))


@dataclass(frozen=True)
class Experiment(Section):
    """One experiment: the settings that all methods of a comparison share, and each method's hyperparameters.

    Attributes:
        seeds: one run per method and seed; several seeds give every number of the report a spread.
        rounds: communication rounds.
        evaluate_every: rounds between evaluations.
        evaluate_last: this number of last rounds is always evaluated; the final value is the mean of the last five
            evaluations.
        evaluation: what is measured.
        theorem_samples: test samples per client, at most, on which Theorem 1 is checked at the end; 0: no check.
        clients: N; null: all clients of the source, with partition.scheme ``natural``.
        participation: r, the share of clients in each round's cohort.
        on_divergence: what happens when a client's training becomes NaN or infinite: ``stop`` the run, ``skip`` the
            client in this round, or ``restore`` its weights from before that training.
        adversaries: malicious clients.
        availability: the probability that a sampled client takes part in a round.
        stragglers: late clients.
        budgets: clients with limited compute.
        newcomers: the share of clients, drawn by seed, that are held out of training; they join after the last round
            and are evaluated after 0, 1 and E epochs.
        architectures: a list, assigned to the clients in turn; or a mapping by number or share of clients,
            ``{lenet: 15, cnn: 5}``, ``{lenet: 0.75, cnn: 0.25}``, or by client, ``{0: lenet, 1: cnn}``.
        pretrained: files of weights to start from, by architecture.
        private: private samples.
        public: public samples.
        image: the format of images; null leaves inputs as they are, such as features.
        text: how texts become tokens.
        partition: which client has which samples.
        training: local training.
        distillation: distillation on public samples.
        knowledge: how predictions are sent.
        compute: device, precision and processes.
        hyperparameters: ``configured``: those under `methods`; ``tuned``: those that tune_<experiment> chose.
        compare: the methods of compare_<experiment>: all, a list, or all without some, as in [all, -fedkd]. KT-pFL and
            local-only training are always included.
        exchange: which methods are compared: ``predictions``, those for clients of any architectures; ``parameters``,
            those that need one architecture.
        headline: the metric that leads the report of a comparison or a sweep; ``auc`` is one class against the rest,
            averaged over classes.
        subject: the method that the report of a comparison is about; null: KT-pFL if it is compared.
        methods: hyperparameters by method.
    """

    private: Private
    seeds: Seeds = field(default_factory=lambda: [0])
    rounds: Count = ROUNDS
    evaluate_every: Count = 1
    evaluate_last: Count = 1
    evaluation: Evaluation = field(default_factory=Evaluation)
    theorem_samples: Natural = 100
    clients: Clients | None = 20
    participation: Fraction = 1.0
    on_divergence: OnDivergence = "stop"
    adversaries: Adversaries = field(default_factory=Adversaries)
    availability: Fraction = 1.0
    stragglers: Stragglers = field(default_factory=Stragglers)
    budgets: Budgets = field(default_factory=Budgets)
    newcomers: Part = 0.0
    architectures: Architectures = field(default_factory=lambda: ["mlp"])
    pretrained: dict[str, str] = field(default_factory=dict)
    public: Public = Public()
    image: Image | None = None
    text: Text = field(default_factory=Text)
    partition: Partition = field(default_factory=Partition)
    training: LocalTraining = field(default_factory=LocalTraining)
    distillation: Distillation = field(default_factory=Distillation)
    knowledge: Annotated[Knowledge, Reads(partial(spelt_out, "knowledge"))] = field(default_factory=Knowledge)
    compute: Compute = field(default_factory=Compute)
    hyperparameters: Literal["configured", "tuned"] = "configured"
    compare: Names = field(default_factory=lambda: [ALL])
    exchange: Exchange = "predictions"
    headline: Headline = "accuracy"
    subject: str | None = None
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def named(self) -> list[str]:
        """The methods that ``compare`` names, without `ALL` and without excluded methods."""
        return [each for each in self.compare if each != ALL and not each.startswith(BUT)]

    @property
    def left_out(self) -> list[str]:
        """The methods that ``compare`` leaves out of `ALL`: ``[all, -fedkd]``."""
        return [each.removeprefix(BUT) for each in self.compare if each.startswith(BUT)]

    @property
    def reliability(self) -> Reliability:
        """Availability, stragglers and limited compute of the clients."""
        return Reliability(self.availability, self.stragglers, self.budgets)

    def models(self) -> list[str]:
        """Return the names of the clients' architectures, each once."""
        return architectures.names(self.architectures)

    def has_public(self) -> bool:
        """Return whether there are public samples."""
        return self.public.source != NO_PUBLIC

    def private_samples(self, available: int) -> int:
        """Return how many private samples are drawn from a source that has `available`, including an open part.

        With `private.samples_per_client` it is this number for each client, or all if the source has fewer.
        """
        if self.private.samples_per_client is None:
            return available if self.private.samples is None else self.private.samples
        clients = self.private.samples_per_client * (self.clients or 1)
        opened = self.public.share if self.public.source == OPEN_PART else 0.0
        return min(available, math.ceil(clients / (1 - opened)))

    def of_data(self) -> dict[str, Any]:
        """Return the settings that the data of the federation depend on, as plain values."""
        names = ("seeds", "clients", "pretrained", "private", "image", "text", "partition")
        public = {"source": self.public.source, "share": self.public.share}
        return {**{name: plain(getattr(self, name)) for name in names}, "public": public}

    def shared(self) -> dict[str, Any]:
        """Return what the runs of all methods depend on, as plain values."""
        return self._without((*CHOICE, "hyperparameters"))

    def settings(self) -> dict[str, Any]:
        """Return what all methods of a comparison must have in common: `shared`, and where hyperparameters come from.

        Where clients are computed is not part of it.
        """
        return self._without(CHOICE)

    def _without(self, names: Iterable[str]) -> dict[str, Any]:
        found = {name: value for name, value in plain(self).items() if name not in names}
        found["compute"] = {name: value for name, value in found["compute"].items() if name not in PLACES}
        return found
