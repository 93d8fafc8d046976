"""The data of a federation: clients, public set, model builder, settings, and named random streams.

Client operations and executors use only this module's `Setting`. `Federation` adds the operations on many clients.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import augmentation, compatibility, kinds, rng
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.model_facts import Head, ModelFacts, facts_of
from ktpfl_pipeline.core.privacy import check_delta, check_possible
from ktpfl_pipeline.core.settings import (
    ROUNDS,
    Adversaries,
    Compute,
    Distillation,
    Knowledge,
    LocalTraining,
    OnDivergence,
    PublicTransport,
    Reliability,
)
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.validation import check
from ktpfl_pipeline.core.warnings import Warned, warn
from ktpfl_pipeline.core.weights import Models, Params, Prototypes, average, params_of

Split = Literal["train", "validation", "test"]
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""The dtype of weights and of sums, by `compute.dtype`. TF32 and bfloat16 apply to matrix products only."""


@dataclass(frozen=True, eq=False)
class Client:
    """One client: its id, the name of its architecture, and its private data in three splits."""

    id: int
    architecture: str
    train: LabeledDataset
    validation: LabeledDataset
    test: LabeledDataset
    name: str = ""  #: the client's name in the source of its data


@dataclass(frozen=True, eq=False)
class Setting:
    """All that a round depends on besides the method's state: the data of a federation, and what follows from them.

    A setting is plain data, which workers copy. `check` checks it, once for each `Federation`.
    """

    clients: tuple[Client, ...]  #: N clients, with distinct ids
    public: Tensor  #: (M, ...), the unlabeled public set: images in uint8, features in float32, or tokens in int64
    public_batch_size: int  #: B, the number of public samples used in one round
    classes: int  #: K, the number of classes
    build: Callable[[str], nn.Module]  #: returns a freshly initialized module of the named architecture
    seed: int = 0  #: the seed of the run; every stream is derived from it
    rounds: int = ROUNDS  #: T, the number of rounds, on which learning-rate schedules depend
    training: LocalTraining = field(default_factory=LocalTraining)
    distillation: Distillation = field(default_factory=Distillation)
    compute: Compute = field(default_factory=Compute)
    #: how a round's public batch is sent to a client, which determines the bytes counted: as float32 or uint8 pixels,
    #: or as indices into a copy at every client. Otherwise a feature takes four bytes, and a token at most four
    public_transport: PublicTransport = "uint8"
    #: what happens when a client's training becomes NaN or infinite: ``stop`` ends the run, ``skip`` removes the
    #: client from the round's cohort, ``restore`` resets the client to its weights from before that training
    on_divergence: OnDivergence = "stop"
    #: the share of clients that upload false predictions, and the kind of these predictions
    adversaries: Adversaries = field(default_factory=Adversaries)
    #: how often clients drop out, and the shares of clients that are late or train less
    reliability: Reliability = field(default_factory=Reliability)
    knowledge: Knowledge = field(default_factory=Knowledge)  #: how predictions are encoded and sent
    #: ids from which adversaries, stragglers and clients with a budget are drawn; empty means the ids of `clients`. A
    #: worker of a cluster has only some of these clients. Newcomers are not among them.
    population: tuple[int, ...] = ()
    warnings: tuple[Warned, ...] = ()  #: what was found in the data and the models; `engine.run` returns them too
    #: properties of architectures by name, each with its `build`; they are found once and sent to workers
    known: dict[str, tuple[Callable[[str], nn.Module], ModelFacts]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Fix the ids from which clients are drawn: a copy with other clients keeps them."""
        object.__setattr__(self, "population", self.population or tuple(self.by_id))

    def check(self) -> None:
        """Check ids and settings, try each architecture, and keep the warnings of the trials in `warnings`.

        Raises InputError if two clients have the same id, the public batch is larger than the public set, a setting is
        invalid, or an architecture does not pass its trial. The encoding, augmentation and private training that the
        settings ask for must be possible.
        """
        for name in ("training", "distillation", "compute", "adversaries", "reliability", "knowledge"):
            check(getattr(self, name), name)
        if wrong := compatibility.problems(None, self):
            raise InputError(" ".join(wrong))
        if len(self.by_id) < len(self.clients):
            raise InputError(f"Client ids must be distinct; there are {[client.id for client in self.clients]}.")
        if not min(1, len(self.public)) <= self.public_batch_size <= len(self.public):
            raise InputError(
                f"The public batch is {self.public_batch_size}; it must be at least 1 and at most the "
                f"{plural(len(self.public), 'sample')} of the public set."
            )
        self.knowledge.check(self.classes)
        self.adversaries.check(len(self.population))
        for client in self.clients[:1]:
            augmentation.check(self.training.augmentation, client.train.inputs)
        own = [Warned("A model's trial", each) for name in self.models() for each in self.facts(name).warnings]
        for each in own:
            warn(each.kind, each.text)
        object.__setattr__(self, "warnings", tuple(dict.fromkeys((*self.warnings, *own))))
        if self.training.privacy is not None:
            shape, kind = tuple(self.public.shape[1:]), kinds.of(self.public)
            check_possible(self.models(), self.build, shape, kind, self.compute)
            check_delta(self.training.privacy, max(len(client.train) for client in self.clients))
        self._check_single_samples()

    def _check_single_samples(self) -> None:
        """Check that architectures whose batches may have a single sample can train on it; with BatchNorm often not."""
        unable = sorted(name for name in self.models() if not self.facts(name).takes_one)
        single = sorted({each.architecture for each in self.clients if len(each.train) == 1}.intersection(unable))
        size, policy = min(self.distillation.batch_size, self.public_batch_size), self.distillation.batch_norm
        by_batch = policy == "train" or (policy == "domain_specific" and self.public_batch_size > 1)
        if unable and self.training.batch_size == 1 and self.training.privacy is None:
            cause = "training.batch_size is 1"
        elif single:
            cause, unable = "a client has a single training sample", single
        elif unable and size == 1 and by_batch:
            cause = f"distillation.batch_size or public.batch is 1, and distillation.batch_norm is {policy}"
        else:
            return
        raise InputError(
            f"{cause}, and {', '.join(unable)} cannot be trained on a batch of one sample, as its BatchNorm needs "
            "more: set at least 2 samples, or take architectures without BatchNorm."
        )

    def models(self) -> list[str]:
        """Return the names of the clients' architectures, without repetition."""
        return list(dict.fromkeys(client.architecture for client in self.clients))

    def has_public(self) -> bool:
        """Return whether the federation has public samples."""
        return len(self.public) > 0

    @cached_property
    def by_id(self) -> dict[int, Client]:
        """Clients by id."""
        return {client.id: client for client in self.clients}

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of clients in the source of their data, by id, for messages; a client may have none."""
        return {client.id: client.name for client in self.clients}

    @cached_property
    def adversary_ids(self) -> list[int]:
        """Ids of the clients that upload false predictions, ascending."""
        return rng.drawn("adversaries", self.adversaries.share, self.population, self.seed)

    @cached_property
    def straggler_ids(self) -> list[int]:
        """Ids of the clients whose uploads arrive late, ascending."""
        return rng.drawn("stragglers", self.reliability.stragglers.share, self.population, self.seed)

    @cached_property
    def budgeted_ids(self) -> list[int]:
        """Ids of the clients that cannot afford all epochs, ascending."""
        return rng.drawn("budgets", self.reliability.budgets.share, self.population, self.seed)

    def affordable(self, n: int, epochs: int) -> int:
        """Return how many of `epochs` local epochs client n performs: all, or as many as its budget allows."""
        if n not in self.budgeted_ids:
            return epochs
        return max(min(1, epochs), round(self.reliability.budgets.epochs * epochs))

    def training_of(self, n: int) -> LocalTraining:
        """Return client n's training settings for a round: those of all clients, limited by its budget.

        If `steps` is set, `epochs` is the number of passes that these steps take.
        """
        steps = self.training.steps and self.affordable(n, self.training.steps)
        epochs = replace(self.training, steps=steps).passes(len(self.by_id[n].train))
        return replace(self.training, steps=steps, epochs=epochs if steps else self.affordable(n, epochs))

    @cached_property
    def device(self) -> torch.device:
        """The device of models, samples and knowledge."""
        return self.compute.place()

    @property
    def memory_format(self) -> torch.memory_format:
        """The order of images and convolutions in memory; `compute.memory_format` says what ``auto`` is."""
        given, images = self.compute.memory_format, kinds.of(self.public).pixels  # only pixels have channels
        faster = self.device.type == "cpu" and self.training.privacy is None
        last = images and (given == "channels_last" or (given == "auto" and faster))
        return torch.channels_last if last else torch.contiguous_format

    def claim(self) -> None:
        """Set the precision of float32 products on a GPU. It is global, so another run may have changed it."""
        if self.device.type == "cuda":
            precision = "tf32" if self.compute.dtype == "tf32" else "ieee"
            cudnn: Any = torch.backends.cudnn  # torch's type stubs lack `conv` and `rnn`
            for products in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
                products.fp32_precision = precision

    def stream(self, purpose: str, *names: int | str) -> torch.Generator:
        """Return the named random stream of this run; see `rng.stream`."""
        return rng.stream(self.seed, purpose, *names)

    def initial_models(self) -> Models:
        """Return each client's model before the first round. Clients of one architecture start with equal weights."""
        initial = self.initial_prototypes()
        return {client.id: initial[client.architecture] for client in self.clients}

    def common_models(self) -> Models:
        """Return each client's model before the first round, for methods that need one architecture."""
        return dict.fromkeys(self.by_id, self.initial_model(self.architecture))

    def initial_prototypes(self) -> Prototypes:
        """Return the initial model of each architecture that a client has."""
        return {name: self.initial_model(name) for name in sorted(self.models())}

    def initial_model(self, architecture: str) -> Params:
        """Return the initial weights of an architecture; repeated calls return the same tensors."""
        if architecture not in self._initial:
            self._initial[architecture] = self.placed(self.drawn(architecture))
        return self._initial[architecture]

    def drawn(self, architecture: str) -> nn.Module:
        """Return a new module of an architecture with its initial weights, including frozen weights."""
        with rng.seeded(rng.derive(self.seed, "initialisation", architecture)):
            return self.build(architecture)

    def facts(self, architecture: str) -> ModelFacts:
        """Return the properties of an architecture, found by a trial; see `model_facts`."""
        build, facts = self.known.get(architecture, (None, None))
        if facts is None or build is not self.build:
            shape, kind = tuple(self.public.shape[1:]), kinds.of(self.public)
            facts = facts_of(self.build, architecture, shape, kind, self.classes)
            self.known[architecture] = self.build, facts
        return facts

    def head(self, architecture: str, needed: str = "layer") -> Head:
        """Return the head of an architecture: the layer that computes its logits.

        Raises InputError if the architecture has no head of the `needed` kind, a value of `Method.needs_head`.
        """
        facts = self.facts(architecture)
        if reason := facts.lacks(needed):
            raise InputError(
                f"The model {architecture!r} does not fit methods on features and heads: {reason}. Take another "
                "architecture, or leave out these methods (docs/methods.md)."
            )
        assert facts.head is not None
        return facts.head

    def placed(self, module: nn.Module) -> Params:
        """Return a new module's weights on the run's device and in its dtype, without waiting for the device."""
        params = params_of(module.to(DTYPES[self.compute.dtype]))
        return {name: sent(tensor, self.device) for name, tensor in params.items()}

    @cached_property
    def _initial(self) -> Prototypes:
        return {}

    @cached_property
    def architecture(self) -> str:
        """The architecture of all clients, for methods that exchange parameters; InputError if there are several."""
        if conflict := compatibility.several_architectures(self):
            raise InputError(conflict.text())
        return self.models()[0]

    @cached_property
    def smallest_architecture(self) -> str:
        """The clients' architecture with the fewest parameters; among equal ones, the first by name."""
        with torch.device("meta"):  # allocates no weights and draws no random numbers
            built = {name: self.build(name) for name in sorted(self.models())}
        return min(built, key=lambda name: sum(weights.numel() for weights in built[name].parameters()))

    @cached_property
    def trained_names(self) -> list[str]:
        """Names of the trained parameters of `architecture`, in the order that vectors use. Buffers are excluded."""
        return [name for name, each in self.outline(self.architecture).named_parameters() if each.requires_grad]

    def outline(self, architecture: str) -> nn.Module:
        """Return a module of an architecture for its names and shapes. The module is shared: do not write to it."""
        if architecture not in self._outlines:
            with rng.seeded(0):
                self._outlines[architecture] = self.build(architecture)
        return self._outlines[architecture]

    @cached_property
    def _outlines(self) -> dict[str, nn.Module]:
        return {}

    def of_one_architecture(self, clients: Iterable[int]) -> dict[str, list[int]]:
        """Return the clients of each architecture, sorted by the architecture's name."""
        found: dict[str, list[int]] = {}
        for n in clients:
            found.setdefault(self.by_id[n].architecture, []).append(n)
        return dict(sorted(found.items()))

    def data_weights(self, cohort: list[int]) -> Tensor:
        """Return each client's share of the cohort's samples, a_n = D_n / Σ D, (|S|,) float64, on the device."""
        sizes = torch.tensor([len(self.by_id[n].train) for n in cohort], dtype=torch.float64)
        return sent(sizes / sizes.sum(), self.device)

    def average(self, models: Models) -> Params:
        """Return the average of the models with weights a_n = D_n / Σ D."""
        return average(list(models.values()), self.data_weights(list(models)))

    def public_batch(self, t: int) -> Tensor:
        """Return round t's public samples D_r as indices into `public`, (B,), drawn without replacement.

        Raises InputError if there are no public samples.
        """
        if conflict := compatibility.no_public(self):
            raise InputError(conflict.text())
        order = torch.randperm(len(self.public), generator=self.stream("public batch", t))
        return order[: self.public_batch_size]

    def public_bytes(self) -> int:
        """Return the number of bytes that sending one round's public batch to one client takes."""
        numbers, size = self.public[0].numel(), kinds.of(self.public).transported(self.public)
        each = {"float32": 4 * numbers, "uint8": size * numbers, "indices": 4}
        return self.public_batch_size * each[self.public_transport]

    def places(self, cohort: list[int]) -> list[int]:
        """Return the positions of the cohort's clients in `clients`, which are their rows in server matrices."""
        places = {client.id: place for place, client in enumerate(self.clients)}
        return [places[n] for n in cohort]

    def rows(self, cohort: list[int]) -> Tensor:
        """Return the cohort's `places`, (|S|,) int64, on the device, where server matrices are."""
        return sent(torch.tensor(self.places(cohort), dtype=torch.int64), self.device)
