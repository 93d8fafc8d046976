"""The operations for one client: local training, distillation, prediction, evaluation.

Batches, devices, dtypes and optimizers are handled only in this package, whose docstring describes the arguments that
all operations share.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import batch_norm
from ktpfl_pipeline.core.client.measures import measures, packed
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.settings import DistillationLoss
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, params_of


def train(space: Workspace, n: int, params: Params, t: int, epochs: int | None = None) -> Outcome[Params]:
    """Train for E epochs, or `epochs`, on client n's cross-entropy; the loss is the mean over the last epoch."""
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    outcome = own.descend(module, own.cross_entropy(module), epochs)
    return outcome.giving(params_of(module))


def distill(
    space: Workspace, n: int | str, params: Params, teacher: Tensor, batch: Tensor, t: int, factor: float = 1.0
) -> Outcome[Params]:
    """Train for R epochs on `distillation_loss` over public samples (KT-pFL Eq. 6).

    `teacher` is (B, K). `factor` multiplies the loss.
    """
    target, settings = teacher.to(space.device, space.dtype), space.setting.distillation

    def loss(students: Tensor, part: Tensor) -> Tensor:
        return factor * distillation_loss(students, target.index_select(0, part), settings.temperature, settings.loss)

    return train_on_public(space, n, params, batch, t, loss)


def train_on_public(
    space: Workspace,
    n: int | str,
    params: Params,
    batch: Tensor,
    t: int,
    loss: Callable[[Tensor, Tensor], Tensor],
    shuffle: torch.Generator | None = None,
) -> Outcome[Params]:
    """Train for R epochs on a loss of the logits, (b, K), of public samples, and of their places in `batch`, (b,).

    `shuffle` orders the samples; None means a stream of each client.
    """
    settings, inputs, module = space.setting.distillation, space.public(batch), space.module(n, params)

    def of(part: Tensor) -> Tensor:
        return loss(module(space.numbers(inputs.index_select(0, part))), part)

    streams = rng.seeded(rng.derive(space.setting.seed, "distillation dropout", t, n), space.device)
    takes_one = space.setting.facts(space.architecture(n)).takes_one
    shuffle = shuffle or space.setting.stream("public shuffle", t, n)
    with batch_norm.distilling(module, settings.batch_norm, len(inputs), takes_one), streams:
        outcome = descend(space, module, of, len(inputs), settings, t, shuffle)
    return outcome.giving(params_of(module))


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float, loss: DistillationLoss = "t2") -> Tensor:
    """Return a multiple of KL(teacher ‖ softmax(logits / T)), (), summed over classes and averaged over the b samples.

    `logits` and `teacher` are (b, K) each; `loss` is `Distillation.loss`. The gradient with respect to the logits is
    f (softmax(logits / T) - teacher) / (T b), with the factor f = T², 1 or 1 / K. With T² the size of a step is nearly
    independent of T (Hinton, Vinyals, Dean 2015). The authors' released code has the mean over all b·K elements.
    """
    factor = {"t2": temperature**2, "plain": 1.0, "mean": 1.0 / logits.shape[1]}[loss]
    return factor * F.kl_div(F.log_softmax(logits / temperature, dim=1), teacher, reduction="batchmean")


def logits(space: Workspace, n: int, params: Params, batch: Tensor) -> Outcome[Tensor]:
    """Return client n's logits, (B, K), on the public samples `batch`, in eval mode; see `batch_norm`."""
    with predicting(space, n, params, batch) as (module, inputs):
        return Outcome(predict(space, module, inputs))


@contextmanager
def predicting(space: Workspace, n: int, params: Params, batch: Tensor) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield client n's module and raw public samples, (B, ...), which it predicts inside the block."""
    settings, module, inputs = space.setting.distillation, space.module(n, params), space.public(batch)
    with batch_norm.predicting(module, settings.batch_norm, inputs, space.numbers, settings.batch_size):
        yield module, inputs


def cross_logits(space: Workspace, n: int, params: Params, inputs: Tensor) -> Outcome[Tensor]:
    """Return the logits, (V, K), of client n's model in eval mode on `inputs` of any clients, (V, ...)."""
    return Outcome(predict(space, space.module(n, params), sent(inputs, space.device)))


def evaluate(space: Workspace, n: int, params: Params, split: Split) -> Outcome[Tensor]:
    """Return the numbers of `Evaluation`, (M,) float64, of client n's model on its own `split`."""
    samples = space.split(n, split)
    predictions = predict(space, space.module(n, params), samples.inputs)
    correct = (predictions.argmax(dim=1) == samples.labels).double().mean()
    loss = F.cross_entropy(predictions, samples.labels)
    others = measures(predictions, samples.labels, torch.ones_like(samples.labels, dtype=torch.bool))
    return Outcome(packed({"accuracy": correct, "loss": loss, **others}))


def own_logits(space: Workspace, n: int, params: Params, split: Split) -> Outcome[Tensor]:
    """Return the logits of client n's model for its `split`, (V, K)."""
    return Outcome(predict(space, space.module(n, params), space.split(n, split).inputs))


@torch.inference_mode()  # only here: a module that is made or loaded in inference mode cannot be trained
def predict(space: Workspace, module: nn.Module, inputs: Tensor) -> Tensor:
    """Return the module's logits, (M, K), on raw inputs, (M, ...), in eval mode, in parts of `prediction_batch`."""
    module.eval()
    return torch.cat(
        [module(space.numbers(part)) for part in torch.split(inputs, space.setting.compute.prediction_batch)]
    )
