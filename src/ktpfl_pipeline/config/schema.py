"""The settings of an experiment, which is a section of conf/. Some groups are defined in `core` and `data`."""

import math
from collections.abc import Iterable, Iterator
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
    Choice,
    Compute,
    Distillation,
    Knowledge,
    LocalTraining,
    OnDivergence,
    PublicTransport,
    Reliability,
    Stragglers,
)
from ktpfl_pipeline.core.shares import ceiling
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
    changed,
    plain,
    spelt_out,
)
from ktpfl_pipeline.data.registry import NATURAL
from ktpfl_pipeline.data.settings import Partition, Text

ALL = "all"
"""The value in `compare` for all methods of the registry that fit the experiment."""
BUT = "-"
"""The prefix of a method in `compare` that is excluded from `ALL`."""
OPEN_PART, NO_PUBLIC = "open_part", "none"
"""Values of `public.source` that are not sources: a part of the private samples, and no public samples."""
REAL = "real_clients"
"""The private source of an experiment with real clients, which only Flower runs (distribution `ktpfl_flower`)."""
RUN_BY_FLOWER = "Real clients are run by Flower: `python -m ktpfl_flower.run federation.yml` (docs/real_clients.md)."
PLACES = ("compute.executor",)
"""Settings that say where clients are computed and never change a result."""
REPLACED = {
    "flower": RUN_BY_FLOWER,
    **dict.fromkeys(("workers", "cluster"), f"Set compute.executor, for example to {EXECUTORS}."),
}
"""Settings of `compute` that were removed, and what replaces them."""
REPORTED = ("headline", "subject", "evaluation.choice")
"""Settings of reports; no run depends on them."""
CHOICE = ("methods", "compare", "exchange", *REPORTED)
"""Settings that select the methods to run and the contents of reports. No run of a method depends on them."""


def one_or_more(value: Any) -> Any:
    """Return a list unchanged, and a single string or number as a list with one element."""
    return [value] if isinstance(value, str | int | float) else value


def joined(value: Any) -> Any:
    """Return a string split at +, which replaces the comma of a list in --params; else as `one_or_more`."""
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
"""The number of clients. The bound, above which memory does not suffice, is checked before anything is allocated."""
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
        source: ``digits``, ``mnist``, ``fashion_mnist``, ``emnist:<split>``, ``cifar10``, ``cifar100`` or
            ``folder:<folder>``. The sources ``npz:<file>``, ``clients:<folder>``, ``leaf:<path>``,
            ``table:<file.csv>`` and ``text:<file.csv>`` may also contain the client of each sample.
        classes: keep only these labels, renumbered from 0; null keeps all.
        samples: the number of samples to draw, stratified by class; the same samples for every seed. null keeps all.
        samples_per_client: the number of samples to draw per client, in addition to the public samples of an open
            part; all samples if the source has fewer.
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
            samples of the private source; ``none``: no public samples, for methods that need none. All sources of
            `private.source` are possible too.
        share: the share of the private samples that becomes public; only with ``open_part``.
        batch: B, the number of public samples that are drawn in each round.
        transport: the form in which clients receive the batch: ``uint8`` or ``float32`` values, or ``indices`` of
            samples that every client has stored. It only affects the counted bytes.
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
        window: for grayscale image files with more than 8 bits, the values that are mapped to black and to white, such
            as [0, 4095].
        unreadable: what happens if image files cannot be read. ``error``: an error lists them; ``skip``: they are left
            out, with a warning.
    """

    channels: Annotated[int, Ge(1), Le(4)]
    size: Annotated[Any, Reads(_sides, "pixels from 1 to 8192, or two in brackets")]
    window: Annotated[Any, Reads(_window, "two numbers in brackets, or null")] = None
    unreadable: Literal["error", "skip"] = "error"

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
        return self.channels, height, width


@dataclass(frozen=True)
class Evaluation:
    """Measurements in addition to the accuracy of the clients' models before adaptation.

    Attributes:
        adapt_epochs: numbers of further local epochs. In the last five evaluations, the models of every method are also
            evaluated after each of these numbers of epochs, and the adapted models are discarded. E is
            `training.epochs`; the models without adaptation, 0, are always evaluated.
        global_samples: the largest number of pooled test samples of all clients on which every model is evaluated at
            the end.
        closing_round: whether all clients take part in the last round even if `participation` is below 1.
        patience: early stopping, the same for every method. A run ends after this number of consecutive evaluations
            without a higher mean validation accuracy, and the best round is the final value. null: all rounds are run,
            and the final value is the mean of the last five evaluations.
        choice: the choice of each client between a method's model and its own, in reports.
    """

    adapt_epochs: AdaptEpochs = field(default_factory=lambda: [0, 1, "E"])
    global_samples: Natural = 1000
    closing_round: bool = False
    patience: Count | None = None
    choice: Annotated[Choice, Reads(partial(spelt_out, "choice"))] = field(default_factory=Choice)

    def epochs(self, of_round: int) -> tuple[int, ...]:
        """Return the numbers of further epochs above 0, ascending; `of_round`, the epochs of a round, replaces E."""
        return tuple(sorted({of_round if each == "E" else int(each) for each in self.adapt_epochs} - {0}))


@dataclass(frozen=True)
class Experiment(Section):
    """One experiment: the settings that all methods of a comparison share, and each method's hyperparameters.

    Attributes:
        seeds: each method is run once per seed. With several seeds, the report shows the spread of every number.
        rounds: communication rounds.
        evaluate_every: rounds between evaluations.
        evaluate_last: the number of last rounds that are always evaluated. The final value is the mean of the last five
            evaluations.
        evaluation: further measurements, and early stopping.
        theorem_samples: the largest number of test samples per client on which Theorem 1 is checked at the end; 0: no
            check.
        clients: N, the number of clients; null: all clients of the source, with partition.scheme ``natural``.
        participation: r, the share of clients that are sampled in each round.
        on_divergence: what happens when a client's training becomes NaN or infinite: ``stop`` the run, ``skip`` the
            client in this round, or ``restore`` its weights from before that training.
        adversaries: malicious clients.
        availability: the probability that a sampled client takes part in a round.
        stragglers: late clients.
        budgets: clients with limited compute.
        newcomers: the share of clients that are held out of training, drawn for each seed. These clients join after
            the last round and are evaluated after 0, 1 and E epochs.
        architectures: a list, whose architectures are assigned to the clients in turn; or a mapping from architectures
            to numbers or shares of clients, ``{lenet: 15, cnn: 5}`` or ``{lenet: 0.75, cnn: 0.25}``; or a mapping from
            clients to architectures, ``{0: lenet, 1: cnn}``.
        pretrained: files of initial weights, by architecture.
        private: private samples.
        public: public samples.
        image: the format of images; null: inputs are not images, or are not converted.
        text: how texts are converted to tokens.
        partition: how the private samples are distributed among the clients.
        training: local training.
        distillation: distillation on public samples.
        knowledge: how predictions are encoded and sent.
        compute: device, precision and processes.
        hyperparameters: ``configured``: the values under `methods`; ``tuned``: the values that tune_<experiment> chose.
        compare: the methods of compare_<experiment>: all, a list of names, or all except some, as in [all, -fedkd].
            KT-pFL and local-only training are always included.
        exchange: the kind of methods that are compared. ``predictions``: methods for clients of any architectures;
            ``parameters``: methods that need one architecture for all clients.
        headline: the metric that the report of a comparison or a sweep shows first; ``auc`` is one class against the
            rest, averaged over classes.
        subject: the method that the report of a comparison compares with the others; null: KT-pFL if it is compared.
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
        return [each for each in self.compare if each != ALL and not each.startswith(BUT)]

    @property
    def left_out(self) -> list[str]:
        """The methods that `compare` excludes from `ALL`, such as ``fedkd`` in ``[all, -fedkd]``."""
        return [each.removeprefix(BUT) for each in self.compare if each.startswith(BUT)]

    @property
    def reliability(self) -> Reliability:
        """Availability, stragglers and limited compute of the clients."""
        return Reliability(self.availability, self.stragglers, self.budgets)

    def models(self) -> list[str]:
        """Return the names of the clients' architectures, without repetition."""
        return architectures.names(self.architectures)

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each pair of settings that exclude each other. It begins with the path of one."""
        private = self.private
        if self.clients is None and self.partition.scheme != NATURAL:
            yield (
                f"clients is null, which means all clients of the source, and partition.scheme is "
                f"{self.partition.scheme!r}, which needs a number of clients: set clients to a number, or the scheme "
                f"to {NATURAL}."
            )
        if private.samples is not None and private.samples_per_client is not None:
            yield (
                f"private.samples is {private.samples} and private.samples_per_client is "
                f"{private.samples_per_client}; each decides how many private samples there are: set one to null."
            )
        if private.samples_per_client is not None and self.clients is None:
            yield (
                f"private.samples_per_client is {private.samples_per_client} and clients is null, all clients of the "
                "source: give a number of clients, or private.samples."
            )
        if self.exchange == "parameters" and (given := changed(self.knowledge)):
            yield (
                f"knowledge.{next(iter(given))} is about sending predictions, but exchange is parameters, whose "
                "methods send none. Remove it, or set exchange to predictions."
            )
        rules = [("adversaries.share to 0", "among benign clients")] if self.adversaries.share else []
        rules += [("training.privacy to null", "after training without privacy")] if self.training.privacy else []
        for remedy, how in rules if self.newcomers else ():
            yield (
                f"newcomers is {self.newcomers:g}, but new clients are evaluated {how}. Set {remedy}, or newcomers to "
                "0."
            )

    def has_public(self) -> bool:
        return self.public.source != NO_PUBLIC

    def private_samples(self, available: int) -> int:
        """Return the number of private samples that are drawn from a source with `available` samples.

        The number includes the samples of an open part, which become public. With `private.samples_per_client`, the
        remaining samples are this number per client, unless the source has fewer.
        """
        if self.private.samples_per_client is None:
            return available if self.private.samples is None else self.private.samples
        clients = self.private.samples_per_client * (self.clients or 1)
        opened = self.public.share if self.public.source == OPEN_PART else 0.0
        return min(available, ceiling(clients / (1 - opened)))

    def of_data(self) -> dict[str, Any]:
        """Return the settings that determine the data of the federation, as plain values."""
        names = ("seeds", "clients", "pretrained", "private", "image", "text", "partition")
        public = {"source": self.public.source, "share": self.public.share}
        return {**{name: plain(getattr(self, name)) for name in names}, "public": public}

    def shared(self) -> dict[str, Any]:
        """Return the settings that runs of all methods depend on, as plain values."""
        return self._without((*CHOICE, "hyperparameters"))

    def settings(self) -> dict[str, Any]:
        """Return the settings that must be equal for all methods of a comparison, as plain values.

        These are the settings of `shared`, and `hyperparameters`. The executor is not included.
        """
        return self._without(CHOICE)

    def _without(self, names: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        for path in (*names, *PLACES):
            group, _, name = path.rpartition(".")
            del (found[group] if group else found)[name]
        return found

    def reported(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in dict.fromkeys(path.split(".")[0] for path in REPORTED)}
