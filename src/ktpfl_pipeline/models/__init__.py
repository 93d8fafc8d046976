"""The models: one family a file, and the registry `MODELS`.

A model takes numbers (n, ...) and returns logits (n, classes). Its initial weights come from
torch's global generator, which the caller seeds. To add a model, write a builder in a file of its own and add one line
to `MODELS`; one outside this package is named by its dotted path, ``my_package.nets:wide_mlp``, one of torchvision or
timm as ``torchvision:resnet18``. These are imported only by the builders that need them, when they are called.
"""

from collections.abc import Callable, Mapping

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.extensions import is_path, load
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.models import own, pretrained, zoo
from ktpfl_pipeline.models.alexnet import alexnet
from ktpfl_pipeline.models.cnn import cnn, cnn_bn
from ktpfl_pipeline.models.cnn1d import cnn1d
from ktpfl_pipeline.models.gru import gru
from ktpfl_pipeline.models.lenet import lenet
from ktpfl_pipeline.models.mcmahan_cnn import mcmahan_cnn
from ktpfl_pipeline.models.mlp import mlp
from ktpfl_pipeline.models.resnet import resnet18
from ktpfl_pipeline.models.shufflenet import shufflenet_v2

Builder = Callable[[Shape, int], nn.Module]
"""Called as ``builder(shape, classes)``, shape being that of one input, (channels, height, width) of an image."""

MODELS: dict[str, Builder] = {
    # The paper's four heterogeneous architectures.
    "lenet": lenet,
    "alexnet": alexnet,
    "resnet18": resnet18,
    "shufflenet_v2": shufflenet_v2,
    # The paper's homogeneous architecture.
    "mcmahan_cnn": mcmahan_cnn,
    # For tests and laptops.
    "mlp": mlp,
    "cnn": cnn,
    "cnn_bn": cnn_bn,
    # For series.
    "cnn1d": cnn1d,
    "gru": gru,
}


def find(name: str) -> Builder:
    """Return the builder of the architecture `name`: of `MODELS`, of torchvision or timm, or at a dotted path.

    Raises:
        InputError: if there is none.
    """
    if is_family(name):
        return zoo.find(name)
    if name not in MODELS and not is_path(name):
        raise unknown("model", name, MODELS)
    builder: Builder = MODELS.get(name) or load(name, "model")
    if not callable(builder):
        raise InputError(f"{name!r} is no model: it must be a function of (shape, classes).")
    return builder


def is_family(name: str) -> bool:
    """Say whether an architecture is one of torchvision or timm."""
    return name.partition(":")[0] in zoo.FAMILIES


def module_of(name: str) -> str:
    """Return the name of the module whose source makes the architecture `name`."""
    if name in MODELS:
        return MODELS[name].__module__
    return zoo.__name__ if is_family(name) else name.partition(":")[0]


def build(name: str, shape: Shape, classes: int, weights: Mapping[str, Params] | None = None) -> nn.Module:
    """Return a new model of the architecture `name`, its weights drawn from torch's global generator.

    Args:
        name: a key of `MODELS`, ``torchvision:<name>``, ``timm:<name>``, or a dotted path.
        shape: of one input, (channels, height, width) of an image.
        classes: number of logits, at least 2.
        weights: by architecture, what is taken in the place of drawn ones where it fits; see `pretrained.load`.

    Returns:
        A module in training mode from numbers (n, ...) to logits (n, classes).

    Raises:
        InputError: if an argument is not among those allowed, or a model of one's own cannot be trained.

    Example:
        >>> torch.manual_seed(0)
        >>> build("lenet", (3, 32, 32), classes=10)(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 10])
    """
    builder = find(name)
    if classes < 2:
        raise InputError(f"No model takes classes={classes!r}; at least 2 are needed: give the number of labels.")
    if name in MODELS or is_family(name):
        model = builder(tuple(shape), classes)
    else:
        model = own.build(name, builder, tuple(shape), classes)
    if weights and name in weights:
        pretrained.load(name, model, weights[name])
    return model
