"""What every method is given: clients, public set, model builder, settings, named random streams, and the verbs.

A verb works on many clients at once. Batches, devices and dtypes exist only behind the verbs (`client/`, one client;
`executors/`, many clients).
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import mutual, prototypes, rng
from ktpfl_pipeline.core.adversaries import Adversaries
from ktpfl_pipeline.core.client import dp_sgd, operations, rules
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError, diverged
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.matrix.teachers import check_teachers
from ktpfl_pipeline.core.metrics import Evaluation
from ktpfl_pipeline.core.weights import Models, Params, Prototypes, params_of

logger = logging.getLogger(__name__)
Value = TypeVar("Value")
Key = TypeVar("Key", int, str)
Split = Literal["train", "validation", "test"]
PublicTransport = Literal["float32", "uint8", "indices"]
OnDivergence = Literal["stop", "skip", "restore"]


@dataclass(frozen=True, eq=False)
class Client:
    """One client: its key, the name of its architecture, and its private data in three splits."""

    id: int
    architecture: str
    train: LabelledDataset
    validation: LabelledDataset
    test: LabelledDataset


@dataclass(frozen=True)
class LocalTraining:
    """Plain SGD on the mean cross-entropy of private data (KT-pFL section 5.1), a fresh optimizer each round."""

    epochs: int = 20  # E
    batch_size: int = 128
    learning_rate: float = 0.01  # η₁
    privacy: dp_sgd.Privacy | None = None  # clipping and noise: DP-SGD instead


@dataclass(frozen=True)
class Distillation:
    """Plain SGD on T²·KL(teacher ‖ student) over the round's public batch (KT-pFL Eq. 6)."""

    epochs: int = 1  # R
    batch_size: int = 256
    learning_rate: float = 0.01  # η₂
    temperature: float = 1.0  # T, of the students and of the soft predictions that make a teacher
    batch_norm: Literal["frozen", "train"] = "frozen"  # frozen: eval mode, so the uploaded prediction is the student's


@dataclass(frozen=True)
class Compute:
    """Where and how the arithmetic is done."""

    device: str = "auto"  # auto: a GPU where there is one
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"  # bfloat16: float32 weights, products in bfloat16
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"  # of images and convolutions
    threads: int = 1  # torch threads; another number rounds float32 differently
    prediction_batch: int = 1000  # images at a time in predictions and evaluation: memory, not results
    server_memory: int = 512  # MiB that the coefficients' arithmetic may take beside predictions and matrix

    def place(self) -> torch.device:
        """Return the device that is meant."""
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(name)


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything a method may know.

    Attributes:
        clients: N clients, with distinct ids.
        public: (M, C, H, W) uint8, the unlabelled public set.
        public_batch_size: B = |D_r|, public samples used in one round.
        classes: K.
        build: makes a freshly initialised module from an architecture's name.
        seed: the seed of the run; every stream is derived from it.
        public_transport: how a round's public batch reaches a client, for the bytes: as float32 or uint8 pixels from
            the server, or as indices into a copy that every client holds.
        on_divergence: what becomes of a client whose training leaves the finite numbers: ``stop`` ends the run,
            ``skip`` takes the client out of the round's cohort, ``restore`` gives it back its weights of before that
            training. See `_trained` and `engine.run`.
        adversaries: how many clients upload false predictions, and which.
        executor: how the verbs visit many clients.
    """

    clients: tuple[Client, ...]
    public: Tensor
    public_batch_size: int
    classes: int
    build: Callable[[str], nn.Module]
    seed: int = 0
    training: LocalTraining = LocalTraining()
    distillation: Distillation = Distillation()
    compute: Compute = Compute()
    public_transport: PublicTransport = "uint8"
    on_divergence: OnDivergence = "stop"
    adversaries: Adversaries = field(default_factory=Adversaries)
    executor: SerialExecutor = field(default_factory=SerialExecutor, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what would silently become another federation."""
        if len(self.by_id) < len(self.clients):
            raise InputError(f"Client ids must be distinct; there are {[client.id for client in self.clients]}.")
        if not 1 <= self.public_batch_size <= len(self.public):
            raise InputError(
                f"The public batch is {self.public_batch_size}; it must be at least 1 and at most the "
                f"{len(self.public)} images of the public set."
            )
        if self.training.privacy is not None:
            dp_sgd.check(self, self.training.privacy)

    @cached_property
    def by_id(self) -> dict[int, Client]:
        """Clients by id."""
        return {client.id: client for client in self.clients}

    @cached_property
    def liars(self) -> list[int]:
        """Ids of the clients that upload false predictions, ascending."""
        return self.adversaries.among(self.by_id, self.seed)

    @cached_property
    def device(self) -> torch.device:
        """Where models, images and knowledge live."""
        return self.compute.place()

    def stream(self, purpose: str, *names: int | str) -> torch.Generator:
        """Return the named random stream of this run; see `rng.stream`."""
        return rng.stream(self.seed, purpose, *names)

    def initial_models(self) -> Models:
        """Return each client's model before the first round: clients of one architecture start alike."""
        initial = self.initial_prototypes()
        return {client.id: initial[client.architecture] for client in self.clients}

    def common_models(self) -> Models:
        """Return each client's model before the first round, for methods that need one architecture."""
        return dict.fromkeys(self.by_id, self.initial_model(self.architecture))

    def initial_prototypes(self) -> Prototypes:
        """Return the initial model of each architecture that a client has."""
        return {name: self.initial_model(name) for name in sorted({client.architecture for client in self.clients})}

    def initial_model(self, architecture: str) -> Params:
        """Return the initial weights of an architecture."""
        with operations.seeded(rng.derive(self.seed, "initialisation", architecture)):
            module = self.build(architecture)
        return params_of(module.to(self.device, operations.DTYPES[self.compute.dtype]))

    @cached_property
    def architecture(self) -> str:
        """The one architecture of all clients, for methods whose knowledge is parameters.

        Raises:
            InputError: if there are several.
        """
        names = sorted({client.architecture for client in self.clients})
        if len(names) > 1:
            raise InputError(
                f"Parameters can be combined only where all clients have one architecture; there are "
                f"{', '.join(names)}. Set architectures to one name, [mcmahan_cnn] for example, or take methods that "
                "exchange predictions."
            )
        return names[0]

    @cached_property
    def head_names(self) -> list[str]:
        """Names of the parameters of `architecture`'s last linear layer."""
        with operations.seeded(0):
            modules = list(self.build(self.architecture).named_modules())
        layers = [name for name, part in modules if isinstance(part, nn.Linear)]
        if not layers:
            raise InputError(f"{self.architecture} has no linear layer to be its head; leave fedrep out.")
        return [name for name in self.trained_names if name.rpartition(".")[0] == layers[-1]]

    @cached_property
    def head_mask(self) -> Tensor:
        """Ones for the parameters of the head in vectors of `architecture`, zeros for the body's, (d,)."""
        model = self.initial_model(self.architecture)
        parts = [torch.full((model[n].numel(),), float(n in self.head_names)) for n in self.trained_names]
        return torch.cat(parts).to(self.device)

    @cached_property
    def trained_names(self) -> list[str]:
        """Names of the trained parameters of `architecture`, in the order of vectors; buffers are not among them."""
        with operations.seeded(0):
            return [name for name, _ in self.build(self.architecture).named_parameters()]

    def data_weights(self, cohort: list[int]) -> Tensor:
        """Return a_n = D_n / Σ D over the cohort, (|S|,) float64."""
        sizes = torch.tensor([len(self.by_id[n].train) for n in cohort], dtype=torch.float64, device=self.device)
        return sizes / sizes.sum()

    def public_batch(self, t: int) -> Tensor:
        """Return round t's public samples D_r, (B,) indices into `public`, drawn afresh without replacement."""
        order = torch.randperm(len(self.public), generator=self.stream("public batch", t))
        return order[: self.public_batch_size]

    def public_bytes(self) -> int:
        """Return the bytes of one round's public batch on its way to one client."""
        pixels = self.public[0].numel()
        return self.public_batch_size * {"float32": 4 * pixels, "uint8": pixels, "indices": 4}[self.public_transport]

    def positions(self, cohort: list[int]) -> Tensor:
        """Return the rows of server matrices that belong to the cohort, (|S|,)."""
        rows = {client.id: row for row, client in enumerate(self.clients)}
        return torch.tensor([rows[n] for n in cohort], device=self.device)

    # Verbs -----------------------------------------------------------------------------------------------------------

    def train(self, models: Models, t: int) -> Models:
        """LocalSGD: return each model trained on its client's private data for E epochs; DP-SGD with `privacy`."""
        verb = operations.train if self.training.privacy is None else dp_sgd.train
        return self._trained("train", verb, {n: (params, t) for n, params in models.items()}, models)

    def train_by(
        self,
        rule: rules.Rule,
        models: Models,
        t: int,
        others: Mapping[int, rules.Vectors] | None = None,
        epochs: int | None = None,
        part: str = "",
    ) -> tuple[Models, dict[int, rules.Vectors]]:
        """Return each model trained by the method's own rule, and the rule's other vectors after it.

        Args:
            rule: how a step goes; see `rules.train`.
            models: where to start.
            t: the round, which names the streams.
            others: what each client's rule needs beside its model.
            epochs: passes over the training split; None takes E.
            part: names the streams of a second training in one round.
        """
        self._refuse_unprotected("trains by a rule of its own")
        limit, given = rules.Limit(self.training.epochs if epochs is None else epochs), others or {}
        calls = {n: (params, rule, given.get(n, ()), t, limit, part) for n, params in models.items()}
        before = {n: (params, given.get(n, ())) for n, params in models.items()}
        found = self._trained("train", rules.train, calls, before)
        return {n: params for n, (params, _) in found.items()}, {n: vectors for n, (_, vectors) in found.items()}

    def adapt(self, rule: rules.Rule, models: Models, steps: int) -> Models:
        """Return each model after a few steps on its client's training images, to be evaluated and thrown away.

        The images are those of round 0, which no round of training has: the same at every evaluation.
        """
        self._refuse_unprotected("adapts models to private images before they are evaluated")
        calls = {n: (params, rule, (), 0, rules.Limit(1, steps)) for n, params in models.items()}
        before: dict[int, tuple[Params, rules.Vectors]] = {n: (params, ()) for n, params in models.items()}
        found = self._trained("adapt", rules.train, calls, before, thrown_away=True)
        return {n: params for n, (params, _) in found.items()}

    def fine_tune(self, models: Models, epochs: int | None = None) -> Models:
        """Return each model trained on its client's private data, to be evaluated and thrown away.

        The shuffles are those of round 0, which no round of training has: the same at every evaluation.

        Args:
            models: where to start.
            epochs: passes over the training split; None takes E.
        """
        self._refuse_unprotected("fine-tunes models before they are evaluated")
        calls = {n: (params, 0, epochs) for n, params in models.items()}
        return self._trained("fine_tune", operations.train, calls, models, thrown_away=True)

    def train_mutually(
        self, models: Models, common: Params, architecture: str, t: int, alpha: float, beta: float
    ) -> tuple[Models, Models]:
        """Return each model and its client's copy of the common one, trained on each other; see `mutual.train`."""
        self._refuse_unprotected("trains two models on each other")
        calls = {n: (params, common, architecture, t, alpha, beta) for n, params in models.items()}
        pairs = self._trained("train", mutual.train, calls, {n: (params, common) for n, params in models.items()})
        return {n: own for n, (own, _) in pairs.items()}, {n: copy for n, (_, copy) in pairs.items()}

    def train_to_prototypes(self, models: Models, targets: Tensor, known: Tensor, weight: float, t: int) -> Models:
        """Return each model trained with its features drawn toward class prototypes; see `prototypes.train`."""
        self._refuse_unprotected("trains toward prototypes")
        calls = {n: (params, targets, known, weight, t) for n, params in models.items()}
        return self._trained("train", prototypes.train, calls, models)

    def class_means(self, models: Models, dimension: int) -> tuple[Tensor, Tensor]:
        """Return each client's mean feature by class, (|S|, K, F), and its training images by class, (|S|, K)."""
        self._refuse_unprotected("shares mean features of private images")
        calls = {n: (params, dimension) for n, params in models.items()}
        found = self.executor.run(self, "prototypes", prototypes.class_means, calls)
        _refuse_non_finite("prototypes", {n: means for n, (means, _) in found.items()})
        return torch.stack([found[n][0] for n in models]), torch.stack([found[n][1] for n in models])

    def logits(self, models: Models, batch: Tensor, t: int = 0) -> Tensor:
        """Return what each client uploads as its model's logits, (|S|, B, K), in the models' order, eval mode.

        Args:
            models: |S| of them.
            batch: (B,) indices of the public samples.
            t: the round, which names the streams of what adversaries make up.
        """
        results = self.executor.run(
            self, "predict", operations.logits, {n: (params, batch) for n, params in models.items()}
        )
        _refuse_non_finite("predictions", results)
        false = {
            n: self.adversaries.uploaded(results[n], self.stream("false predictions", t, n))
            for n in self.liars
            if n in results
        }
        return torch.stack([false.get(n, results[n]) for n in models])

    def distill(self, models: Models, teachers: Tensor, batch: Tensor, t: int) -> Models:
        """Return each model fitted to its teacher on the public samples `batch` for R epochs.

        Args:
            models: the students, |S| of them.
            teachers: (|S|, B, K) probabilities, in the models' order.
            batch: (B,) indices of the public samples that the teachers speak of.
            t: the round, which names the shuffling streams.
        """
        check_teachers(teachers, list(models))
        calls = {n: (params, teacher, batch, t) for (n, params), teacher in zip(models.items(), teachers, strict=True)}
        return self._trained("distill", operations.distill, calls, models)

    def fuse(self, models: Prototypes, teacher: Tensor, batch: Tensor, t: int) -> Prototypes:
        """Return the server's models, one per architecture, each fitted to the teacher, (B, K), for R epochs."""
        check_teachers(teacher, list(models))
        calls = {name: (params, teacher, batch, t) for name, params in models.items()}
        return self._trained("fuse", operations.distill, calls, models)

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabelledDataset:
        """Return client n's `split`, or `limit` of its samples, drawn once and for all."""
        samples: LabelledDataset = getattr(self.by_id[n], split)
        if limit is None or limit >= len(samples):
            return samples
        return samples.take(torch.randperm(len(samples), generator=self.stream("held out", split, n))[:limit])

    def cross_logits(self, models: Models, split: Split, limit: int | None = None) -> dict[int, Tensor]:
        """Return what every model says of every client's images: by client, (V_n, |S|, K), eval mode.

        The private images do not move in the simulation; in a real federation the models would have to.

        Args:
            models: |S| of them; the clients whose images are meant are theirs.
            split: of which images.
            limit: at most so many a client, those of `held_out`.
        """
        if split != "test":  # which is looked at to judge a run, as in an evaluation
            self._refuse_unprotected("weighs models on private images")
        parts = [self.held_out(n, split, limit).images for n in models]
        calls = {n: (params, torch.cat(parts)) for n, params in models.items()}
        answers = self.executor.run(self, "cross_predict", operations.cross_logits, calls)  # (Σ V_n, K) each
        _refuse_non_finite("predictions", answers)
        stacked = torch.stack([answers[n] for n in models], dim=1)
        return dict(zip(models, torch.split(stacked, [len(part) for part in parts]), strict=True))

    def candidate_losses(self, candidates: dict[int, list[Params]], split: Split) -> dict[int, list[float]]:
        """Return the mean cross-entropy on each client's `split` of each of its candidate models, in their order."""
        self._refuse_unprotected("weighs models on private images")
        calls = {n: (models, split) for n, models in candidates.items()}
        return self.executor.run(self, "validate", operations.losses, calls)

    def evaluate(self, models: Models, split: Split) -> dict[int, Evaluation]:
        """Return accuracy and loss of each model on its own client's `split`."""
        return self.executor.run(
            self, "evaluate", operations.evaluate, {n: (params, split) for n, params in models.items()}
        )

    def _refuse_unprotected(self, what: str) -> None:
        """Refuse a use of private images beside `train`, of which the ε of private training would know nothing."""
        if self.training.privacy is not None:
            raise InputError(
                f"training.privacy is set, and this method {what}, which its ε would not cover: set it to null, or run "
                "methods on plain local training alone, as docs/privacy.md lists them."
            )

    def _trained(
        self,
        phase: str,
        verb: Callable[..., operations.Outcome[Value]],
        calls: Mapping[Key, tuple[Any, ...]],
        before: Mapping[Key, Value],
        *,
        thrown_away: bool = False,
    ) -> dict[Key, Value]:
        """Run a verb that trains, and look whose weights or loss left the finite numbers.

        This is where divergence is noticed: before anything of that client is mixed with what others have.

        Args:
            phase: as the executor calls it.
            verb: what is done for each client.
            calls: its arguments by client.
            before: what stands in the place of each value where it diverged and is restored.
            thrown_away: whether the models are made for one evaluation. A client cannot leave the cohort then, of
                which it may not be; ``skip`` is ``restore`` there.

        Raises:
            DivergedError: if somebody diverged, unless all of them are restored.
        """
        values = self.executor.run(self, phase, verb, calls)
        broken, losses = self.executor.broken.get(phase, set()), self.executor.losses.get(phase, {})
        found: dict[int | str, str] = {}
        for n in calls:
            if not math.isfinite(losses.get(n, 0.0)):
                found[n] = f"its {phase} loss is {losses[n]}"
            elif n in broken:
                found[n] = f"its weights after {phase} are not finite"
        if not found:
            return values
        restores = self.on_divergence == "restore" or (thrown_away and self.on_divergence == "skip")
        if not restores or any(isinstance(n, str) for n in found):
            raise diverged(found)
        for who, what in found.items():
            logger.warning("Client %s diverged (%s); it goes on with its weights of before.", who, what)
            self.executor.restored.add(int(who))
            del losses[who]
        return {n: before[n] if n in found else value for n, value in values.items()}


def _refuse_non_finite(what: str, uploads: Mapping[int, Tensor]) -> None:
    """Refuse what is no number before it is mixed with what others sent: its client's training has diverged."""
    whole = torch.stack([upload.isfinite().all() for upload in uploads.values()]).tolist()  # one wait for the device
    found: dict[int | str, str] = {
        n: f"its {what} are not finite" for n, finite in zip(uploads, whole, strict=True) if not finite
    }
    if found:
        raise diverged(found)
