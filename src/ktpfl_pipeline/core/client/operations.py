"""The verbs for one client: batches, devices, dtypes and optimizers exist only here.

Each function is called as ``verb(workspace, client id, params, ...)`` by an executor. Pixels become numbers in one
place, `Workspace.pixels`, for private and public images alike.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.metrics import Evaluation
from ktpfl_pipeline.core.weights import Params, params_of

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Distillation, Federation, LocalTraining, Split

Value = TypeVar("Value")
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""Of weights, and of all that is added up; bfloat16 is a precision of products alone."""
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """What a verb returns for one client.

    Attributes:
        value: the result.
        loss: the mean training loss, where it trained.
        finite: whether the weights that it trained are numbers, a bool on the device; see `checked`.
    """

    value: Value
    loss: float | None = None
    finite: Tensor | None = None


def checked(outcome: Outcome[Value]) -> Outcome[Value]:
    """Return the outcome of a training with `finite` as it is; executors call it where the weights are.

    The last step of a training can break weights whose loss was a number still. Zero times a number is zero, and times
    infinity or NaN it is NaN: the sum tells, several times faster than `isfinite`. The device is not waited for.
    """
    numbers = [part for part in _tensors(outcome.value) if part.is_floating_point()]
    if outcome.loss is None or not numbers:
        return outcome
    return replace(outcome, finite=torch.stack([(0.0 * part).sum() == 0.0 for part in numbers]).all())


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a verb's value: models, vectors, or several of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


class Workspace:
    """What one process keeps between calls: its device, one module per architecture, the images on the device."""

    def __init__(self, fed: "Federation") -> None:
        """Claim the device of `fed` and fix the number of torch threads."""
        self.fed = fed
        self.device = fed.device
        self.dtype = DTYPES[fed.compute.dtype]
        self.format = FORMATS[fed.compute.memory_format]
        self._modules: dict[tuple[str, str], nn.Module] = {}
        self._splits: dict[tuple[int, str], LabelledDataset] = {}
        self._public: Tensor | None = None
        if torch.get_num_threads() != fed.compute.threads:
            torch.set_num_threads(fed.compute.threads)
        if self.device.type == "cuda":  # float32 is float32, sums of bfloat16 too, and the same kernels every time
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False

    def module(self, n: int | str, params: Params, role: str = "own") -> nn.Module:
        """Return the module of client n's architecture, or of the architecture n, loaded with `params`.

        There is one module per architecture and `role`: who needs two at a time gives them different ones.
        """
        name = n if isinstance(n, str) else self.fed.by_id[n].architecture
        if (name, role) not in self._modules:
            with seeded(0):  # the initial weights are overwritten at once; the global generator stays as it was
                built = self.fed.build(name).to(self.device, self.dtype).to(memory_format=self.format)
            if self.reduced:
                grouped: list[Any] = [part for part in built.modules() if getattr(part, "groups", 1) > 1]
                for part in grouped:
                    part.forward = _trained_in_float32(part.forward, self.device.type)
                built.forward = _in_bfloat16(built.forward, self.device.type)
            self._modules[name, role] = built
        module = self._modules[name, role]
        module.load_state_dict(params)
        return module

    @property
    def reduced(self) -> bool:
        """Whether products are taken in bfloat16."""
        return self.fed.compute.dtype == "bfloat16"

    def split(self, n: int, name: "Split") -> LabelledDataset:
        """Return one split of client n, on the device."""
        if (n, name) not in self._splits:
            samples: LabelledDataset = getattr(self.fed.by_id[n], name)
            self._splits[n, name] = LabelledDataset(samples.images.to(self.device), samples.labels.to(self.device))
        return self._splits[n, name]

    def public(self, batch: Tensor) -> Tensor:
        """Return the public images at `batch`, (B, C, H, W) uint8, on the device."""
        if self._public is None:
            self._public = self.fed.public.to(self.device)
        return self._public[batch.to(self.device)]

    def pixels(self, images: Tensor) -> Tensor:
        """Return uint8 images as numbers from -1 to 1: the one preprocessing, of private and public images alike."""
        return images.to(self.dtype).div_(127.5).sub_(1.0).contiguous(memory_format=self.format)


def _in_bfloat16(forward: Callable[[Tensor], Tensor], device: str) -> Callable[[Tensor], Tensor]:
    """Return `forward` with the products of matrices and convolutions in bfloat16, forward and backward."""

    def reduced(images: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return forward(images).float()

    return reduced


def _trained_in_float32(forward: Callable[[Tensor], Tensor], device: str) -> Callable[[Tensor], Tensor]:
    """Return `forward` of a grouped convolution, in float32 where a gradient is taken.

    A depthwise convolution is no product of matrices: backward, oneDNN takes several times as long in bfloat16.
    """

    def whole(images: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(images)
        with torch.autocast(device, enabled=False):
            return forward(images.float())

    return whole


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators (initialisation, dropout) inside the block, and put them back after it.

    Only the CPU's and that of `device`: to ask for the state of a GPU starts CUDA, which a forked worker cannot.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


def train(space: Workspace, n: int, params: Params, t: int, epochs: int | None = None) -> Outcome[Params]:
    """Run E epochs of SGD on client n's cross-entropy; return its new weights and the last epoch's mean loss."""
    settings, samples = space.fed.training, space.split(n, "train")
    settings = settings if epochs is None else replace(settings, epochs=epochs)
    module = space.module(n, params).train()

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(module(space.pixels(samples.images[batch])), samples.labels[batch])

    with seeded(rng.derive(space.fed.seed, "dropout", t, n), space.device):
        value = descend(module, loss, len(samples), settings, space.fed.stream("private shuffle", t, n))
    return Outcome(params_of(module), value)


def distill(space: Workspace, n: int | str, params: Params, teacher: Tensor, batch: Tensor, t: int) -> Outcome[Params]:
    """Run R epochs of SGD on T²·KL(teacher ‖ student) over the public samples `batch` (KT-pFL Eq. 6)."""
    settings, images = space.fed.distillation, space.public(batch)
    module = space.module(n, params).train(settings.batch_norm == "train")
    target = teacher.to(space.device, space.dtype)

    def loss(batch: Tensor) -> Tensor:
        return distillation_loss(module(space.pixels(images[batch])), target[batch], settings.temperature)

    with seeded(rng.derive(space.fed.seed, "distillation dropout", t, n), space.device):
        value = descend(module, loss, len(images), settings, space.fed.stream("public shuffle", t, n))
    return Outcome(params_of(module), value)


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T²·KL(teacher ‖ softmax(logits / T)), summed over classes, averaged over samples.

    Its gradient with respect to the logits is T·(softmax(logits / T) - teacher) / samples, so T changes the shape of
    the teacher and not the size of the step.

    Args:
        logits: (b, K) of the student.
        teacher: (b, K) probabilities.
        temperature: T.
    """
    student = F.log_softmax(logits / temperature, dim=1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean")


def logits(space: Workspace, n: int, params: Params, batch: Tensor) -> Outcome[Tensor]:
    """Return client n's logits on the public samples `batch`, (B, K), in eval mode."""
    return Outcome(predict(space, space.module(n, params), space.public(batch)))


def cross_logits(space: Workspace, n: int, params: Params, images: Tensor) -> Outcome[Tensor]:
    """Return client n's logits on `images`, (V, C, H, W) of any clients, (V, K), in eval mode."""
    return Outcome(predict(space, space.module(n, params), images.to(space.device)))


def evaluate(space: Workspace, n: int, params: Params, split: "Split") -> Outcome[Evaluation]:
    """Return accuracy and mean cross-entropy of client n's model on its own `split`."""
    samples = space.split(n, split)
    predictions = predict(space, space.module(n, params), samples.images)
    correct = (predictions.argmax(dim=1) == samples.labels).double().mean()
    return Outcome(Evaluation(float(correct), float(F.cross_entropy(predictions, samples.labels))))


def losses(space: Workspace, n: int, candidates: list[Params], split: "Split") -> Outcome[list[float]]:
    """Return the mean cross-entropy of each of the candidate models on client n's `split`."""
    return Outcome([evaluate(space, n, params, split).value.loss for params in candidates])


@torch.inference_mode()  # no wider: a module made or loaded inside it could never train
def predict(space: Workspace, module: nn.Module, images: Tensor) -> Tensor:
    """Return the module's logits on uint8 images, (M, K), in eval mode."""
    module.eval()
    return torch.cat([module(space.pixels(part)) for part in torch.split(images, space.fed.compute.prediction_batch)])


def descend(
    module: nn.Module,
    loss: Callable[[Tensor], Tensor],
    samples: int,
    settings: "LocalTraining | Distillation",
    shuffle: torch.Generator,
) -> float:
    """Run plain SGD; return the mean loss over the last epoch (0 without an epoch).

    Args:
        module: what is trained, in place.
        loss: the mean loss of the samples at the given indices.
        samples: how many samples there are.
        settings: passes over them, batch size (the last, shorter batch is kept) and step size.
        shuffle: the stream that orders the samples anew in each epoch.
    """
    parameters = list(module.parameters())
    device = parameters[0].device
    total = torch.zeros((), device=device, dtype=torch.float64)
    for _ in range(settings.epochs):
        total.zero_()
        for batch in batches(samples, settings.batch_size, shuffle, device):
            value = loss(batch)
            step(parameters, torch.autograd.grad(value, parameters), settings.learning_rate)
            total += value.detach() * len(batch)
    return float(total) / samples


@torch.no_grad()
def step(parameters: list[nn.Parameter], gradients: tuple[Tensor, ...], learning_rate: float) -> None:
    """Take one step of plain SGD, w ← w - η g, in place: `torch.optim.SGD` to the bit.

    Without momentum there is no state to keep, and making the first `torch.optim` optimizer of a process imports
    torch's compiler: five seconds before the first step.
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient, alpha=learning_rate)


def batches(samples: int, size: int, shuffle: torch.Generator, device: torch.device | None = None) -> list[Tensor]:
    """Return all indices below `samples` in a fresh order, in batches of `size`; the last, shorter one is kept.

    A single image left over joins the batch before it: BatchNorm cannot train on one image, and none is dropped. They
    are drawn on the CPU, and go to `device` all at once: a GPU would be waited for at each step otherwise.
    """
    order = torch.randperm(samples, generator=shuffle).to(device, non_blocking=True)
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1 < size:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
