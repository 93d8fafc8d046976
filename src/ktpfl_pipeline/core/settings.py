"""The groups of settings that a federation has: each is one frozen dataclass, with bounds, defaults and meanings.

`core.validation` reads and checks them; ``conf/`` sets them. Importing this module does not import torch. `core.recipe`
has the settings that local training and distillation share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from ktpfl_pipeline.core.augmentation import Augmentation
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.recipe import BATCH_NORM, BatchNormPolicy, Recipe
from ktpfl_pipeline.core.shares import rounded
from ktpfl_pipeline.core.validation import Chance, Count, Fraction, Natural, NotNegative, Part, Positive, Reads, Share

if TYPE_CHECKING:
    import torch

Dtype = Literal["float32", "tf32", "float64", "bfloat16"]
MemoryFormat = Literal["auto", "contiguous", "channels_last"]
PublicTransport = Literal["float32", "uint8", "indices"]
ClassWeights = Literal["none", "balanced"]
DistillationLoss = Literal["t2", "plain", "mean"]
OnDivergence = Literal["stop", "skip", "restore"]
Threads = Annotated[int, Ge(1), Le(256)]
Workers = Literal["auto"] | Threads
ROUNDS = 30
"""T, the number of rounds, where none is given."""


@dataclass(frozen=True)
class Privacy:
    """Noise and clipping of DP-SGD.

    Attributes:
        noise_multiplier: σ, standard deviation of the noise in units of C.
        max_grad_norm: C, the L2 norm that the gradient of each sample is clipped to.
        delta: δ, the probability that ε does not hold; choose it well below 1 / (training samples of a client).
    """

    noise_multiplier: Annotated[float, Ge(0.01), Le(1e6)]
    max_grad_norm: Positive = 1.0
    delta: Share = 1e-5


@dataclass(frozen=True)
class LocalTraining(Recipe):
    """Training of each client on its private samples: descent on the mean cross-entropy (KT-pFL Eq. 5).

    Attributes:
        epochs: E, passes over a client's training samples per round.
        learning_rate: η₁, multiplied by `schedule`.
        label_smoothing: ε; the label of the true class is 1 - ε + ε/K, that of each other class ε/K.
        class_weights: ``none``; or ``balanced``: the loss weighs a sample by how rare its class is among the client's
            own training samples, so that each of its classes has the same weight.
        augmentation: random changes of training images, drawn for every batch: crop, flip, color_jitter and
            rand_augment, in any order, with arguments if needed: ``[{crop: {padding: 4}}, flip]``.
        privacy: null; or DP-SGD, which clips the gradient of each sample and adds noise; the report states ε.
    """

    epochs: Natural = 20
    batch_size: Count = 128
    label_smoothing: Part = 0.0
    class_weights: ClassWeights = "none"
    augmentation: Augmentation = ()
    privacy: Privacy | None = None

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each pair of settings that exclude each other."""
        yield from super().conflicts()
        if self.privacy is not None and self.class_weights != "none":
            yield (
                f"class_weights is {self.class_weights}, which counts a client's labels; the ε of privacy does not "
                "cover that: set class_weights to none."
            )
        if self.privacy is not None and self.steps is not None:
            yield f"steps is {self.steps}, but the ε of privacy counts epochs: set steps to null."
        if self.privacy is not None and self.clip is not None:
            yield (
                f"clip is {self.clip}, but privacy already clips the gradient of each sample to "
                f"privacy.max_grad_norm ({self.privacy.max_grad_norm}): set clip to null."
            )


@dataclass(frozen=True)
class Distillation(Recipe):
    """Training of each client toward its teacher: descent on KL(teacher ‖ student) (KT-pFL Eq. 6).

    Attributes:
        epochs: R, passes over the round's public batch.
        learning_rate: η₂, multiplied by `schedule`.
        temperature: T, of students and teachers.
        loss: ``t2``: T²·KL, so that the size of a step hardly depends on T. ``plain``: KL. ``mean``: KL / K for K
            classes, as in the authors' released code, whose mean is over classes too.
        batch_norm: what BatchNorm normalizes public samples with. ``domain_specific``: statistics of public samples in
            predictions and of the mini-batch while distilling; the running statistics stay those of private samples.
            ``train``: statistics of the mini-batch while distilling, which changes the running statistics, as in the
            authors' code. ``frozen``: the running statistics.
    """

    epochs: Natural = 1
    batch_size: Count = 256
    temperature: Positive = 1.0
    loss: DistillationLoss = "t2"
    batch_norm: BatchNormPolicy = BATCH_NORM


EXECUTORS = "serial, processes, {processes: 4}, ray, or {ray: {address: auto, workers: 8}}"
"""Examples of `Compute.executor`, for messages."""


def _gpus(value: Any) -> Any:
    """Return a number of GPUs that Ray can assign."""
    if isinstance(value, float) and value > 1 and not value.is_integer():
        raise ValueError("a share of one GPU, or an integer")
    return value


def _ray(value: Any) -> Any:
    """Return the settings of Ray: an address may replace them."""
    return {"address": value} if isinstance(value, str) else value


@dataclass(frozen=True)
class Ray:
    """Workers on the machines of a Ray cluster.

    Attributes:
        address: ``local`` starts Ray on this machine; ``auto`` joins the cluster of this machine, and ``host:port`` the
            cluster with this head.
        workers: a number; or ``auto``: one per CPU of the cluster, or as many as its GPUs have room for.
        gpus_per_worker: GPUs that Ray assigns to each worker, an integer or a share of one GPU; null: one if
            `compute.device` is a GPU, else none.
    """

    address: str = "local"
    workers: Workers = "auto"
    gpus_per_worker: Annotated[float | None, Reads(_gpus), Gt(0), Le(256)] = None


@dataclass(frozen=True)
class ExecutorSettings:
    """Where clients are computed: one after another in this process (``serial``), or in one of these ways.

    Attributes:
        processes: processes of this machine, each of which computes one client at a time; ``auto``: one per core as
            far as memory allows, or one per GPU.
        ray: workers on a Ray cluster.
    """

    processes: Workers | None = None
    ray: Annotated[Ray | None, Reads(_ray)] = None

    @property
    def module(self) -> str:
        """The executor's file in `core/executors/`."""
        return next((file for name, (file, _) in ALONE.items() if getattr(self, name) is not None), "serial")


ALONE: dict[str, tuple[str, Any]] = {"processes": ("processes", "auto"), "ray": ("cluster", {})}
"""By executor: its file in `core/executors/`, and its settings if only its name is given."""


def _executor(value: Any) -> Any:
    """Return the values of `ExecutorSettings` for an executor's name, or for a mapping of its name to its settings."""
    if isinstance(value, ExecutorSettings):
        return value
    given = {value: None} if isinstance(value, str) else value
    if isinstance(given, Mapping):
        given = {name: each for name, each in given.items() if each is not None or len(given) == 1}
        if not given or given == {"serial": None}:
            return {}
        if len(given) == 1 and given.keys() <= ALONE.keys():
            return {name: ALONE[name][1] if each is None else each for name, each in given.items()}
    raise ValueError(EXECUTORS)


def has_bfloat16(device: str) -> bool:
    """Return whether this machine's `device`, ``cpu`` or ``cuda``, has instructions for products in bfloat16."""
    import torch

    return device != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@dataclass(frozen=True)
class Compute:
    """Device, precision and processes.

    Attributes:
        device: ``auto``: a GPU if there is one. Or ``cpu``; ``cuda``, all GPUs, one per worker; ``cuda:1``, one GPU.
        dtype: ``float32`` is the reference. ``float64``; ``bfloat16``, products in bfloat16 and all else in float32, if
            the processor has its instructions; ``tf32``, the same with TF32, on a GPU.
        memory_format: of images and convolutions: ``channels_last``, faster on CPUs; ``contiguous``, faster on GPUs;
            ``auto``, the faster one, and ``contiguous`` with `training.privacy`. It changes rounding. A model
            that does not take ``channels_last``, as with a `view` of a convolution's output, stays ``contiguous``.
        threads: torch threads. Another number rounds float32 differently, so it is part of a run's identity.
        executor: where clients are computed: ``serial``, one after another; ``processes`` or ``{processes: 4}``, in
            processes of this machine; ``ray`` or ``{ray: {address: auto, workers: 8}}``, on a Ray cluster. It never
            changes a result.
        prediction_batch: samples per step in predictions and evaluation; bounds memory and does not change results.
        server_memory: MiB for the arithmetic of the coefficients, in addition to predictions and matrix.
    """

    device: str = "auto"
    dtype: Dtype = "float32"
    memory_format: MemoryFormat = "auto"
    threads: Threads = 1
    executor: Annotated[ExecutorSettings, Reads(_executor, EXECUTORS)] = ExecutorSettings()
    prediction_batch: Count = 1000
    server_memory: Count = 512

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence if the device has no products of this dtype."""
        if self.dtype == "tf32" and self.place().type != "cuda":
            yield ("dtype is tf32, which needs a GPU, but the device is a CPU: set compute.dtype to float32.")
        if self.dtype == "bfloat16" and not has_bfloat16(self.place().type):
            yield "dtype is bfloat16, for which this processor has no instructions: set compute.dtype to float32."

    def place(self) -> "torch.device":
        """Resolve `device`: a GPU if there is one for ``auto``, else the device as given."""
        import torch

        auto = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(auto if self.device == "auto" else self.device)


@dataclass(frozen=True)
class Adversaries:
    """Malicious (Byzantine) clients, which upload false predictions; report means are over the other clients.

    Attributes:
        share: the share of malicious clients; there are round(share · N).
        kind: what they upload: ``random``, normal noise with the mean and standard deviation of their logits;
            ``reversed``, their logits with the classes in reverse order; ``scaled``, their logits times -10.
    """

    share: Part = 0.0
    kind: Literal["random", "reversed", "scaled"] = "reversed"

    def check(self, clients: int) -> None:
        """Check that at least one of this many clients is benign; else raise `InputError`."""
        if (size := rounded(self.share, clients)) and size == clients:
            raise InputError(
                f"adversaries.share is {self.share:g}, which is {size} of {plural(clients, 'client')}; take a share "
                "that leaves at least one benign client, or 0."
            )


@dataclass(frozen=True)
class Knowledge:
    """How predictions are sent, in both directions; by default all of them as float32.

    Attributes:
        encoding: ``float32`` or ``float16``; ``uint8``, 8 bits; ``sign``, 1 bit, with error feedback; ``top_k``, only
            the most likely classes. The counted bytes are those of what is sent. The name of an encoding may be given
            in place of the group: ``knowledge: uint8``.
        k: classes sent per sample; only with ``top_k``.
        cache: D, the number of rounds for which a prediction that was sent is not sent again; 0 sends all.
        select: the share of its predictions that a client uploads: those in which its model is most confident.
        noise: σ, the standard deviation of the Gaussian noise that a client adds to each probability before it uploads.
    """

    encoding: Literal["float32", "float16", "uint8", "sign", "top_k"] = "float32"
    k: Count = 3
    cache: Natural = 0
    select: Fraction = 1.0
    noise: NotNegative = 0.0

    @property
    def plain(self) -> bool:
        """Whether all predictions, with or without noise, are sent without encoding, cache or selection."""
        return self.encoding == "float32" and self.cache == 0 and self.select == 1.0

    def check(self, classes: int) -> None:
        """Check that this many classes can be sent; else raise `InputError`."""
        if self.encoding == "top_k" and self.k > classes:
            raise InputError(
                f"knowledge.k is {self.k}, but there are {classes} classes: set it to at most {classes}, or choose "
                "another knowledge.encoding."
            )


@dataclass(frozen=True)
class Choice:
    """The choice of each client between a method's model and its own model of local-only training.

    The choice is made after the runs and trains nothing, so no run depends on it.

    Attributes:
        by: ``validation``: a client keeps the method's model if this has the higher accuracy on the client's validation
            samples, and its own after a tie; ``none``: no choice. The value may be given in place of the group:
            ``choice: none``.
        margin: the accuracy, in 0..1, that the method's model must have in addition.
        minimum: the smallest number of validation samples for a choice. A client with fewer keeps its own model.
    """

    by: Literal["validation", "none"] = "validation"
    margin: Part = 0.0
    minimum: Count = 5

    def keeps(self, theirs: float, own: float, samples: int) -> bool:
        """Return whether a client keeps the method's model, from both accuracies on its validation samples, in 0..1."""
        return samples >= self.minimum and round(theirs - own - self.margin, 9) > 0


@dataclass(frozen=True)
class Stragglers:
    """Clients whose uploads arrive late, the same clients in all rounds.

    If clients upload predictions and no models, a straggler's predictions are those of its model `delay` rounds ago,
    not counting rounds in which it did not take part. With other methods that exchange anything, a straggler misses
    `delay` rounds after each round in which it takes part.

    Attributes:
        share: the share of stragglers; there are round(share · N).
        delay: how many rounds late they are.
    """

    share: Chance = 0.0
    delay: Count = 1


@dataclass(frozen=True)
class Budgets:
    """Clients with limited compute, which train fewer than E epochs, the same clients in all rounds.

    Attributes:
        share: the share of such clients; there are round(share · N).
        epochs: the share of the E epochs that they train; at least one epoch.
    """

    share: Chance = 0.0
    epochs: Fraction = 0.25


@dataclass(frozen=True)
class Reliability:
    """Availability, stragglers and limited compute of the clients.

    Attributes:
        availability: the chance that a sampled client shows up in a round.
        stragglers: clients whose uploads arrive late.
        budgets: clients that train fewer epochs.
    """

    availability: Fraction = 1.0
    stragglers: Stragglers = Stragglers()
    budgets: Budgets = Budgets()
