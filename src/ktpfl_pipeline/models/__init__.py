"""The models: one family per file, and the registry `MODELS`.

A model maps numbers, (n, ...), or token ids, (n, length), to logits, (n, classes). Its initial weights are drawn from
torch's global generator, which the caller seeds. To add a model, write a builder in a new file and add one line to
`MODELS`. A model outside this package is named by its dotted path, ``my_package.nets:wide_mlp``. Models of other
libraries are named ``torchvision:<name>``, ``timm:<name>`` or ``transformers:<folder>``. A library is imported when one
of its models is built.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version

from torch import nn

from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.extensions import is_path, load
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.models import own, pretrained, text, transformers, zoo
from ktpfl_pipeline.models.alexnet import alexnet
from ktpfl_pipeline.models.lenet import lenet
from ktpfl_pipeline.models.mcmahan_cnn import mcmahan_2nn, mcmahan_cnn, mcmahan_unpadded
from ktpfl_pipeline.models.resnet import resnet18
from ktpfl_pipeline.models.series import cnn1d, gru
from ktpfl_pipeline.models.shufflenet import shufflenet_v2
from ktpfl_pipeline.models.small import cnn, cnn_bn, logistic, mlp

Builder = Callable[[Shape, int], nn.Module]
"""``builder(shape, classes)`` returns a new model for inputs of `shape`, such as (channels, height, width).

The shape of a text, (length,), has the attributes ``vocabulary`` and ``padding``; see `core.dataset.TokenShape`.
"""

MODELS: dict[str, Builder] = {
    # The paper's four heterogeneous architectures.
    "lenet": lenet,
    "alexnet": alexnet,
    "resnet18": resnet18,
    "shufflenet_v2": shufflenet_v2,
    # The paper's homogeneous architecture.
    "mcmahan_cnn": mcmahan_cnn,
    # Other projects' models for images of one channel, to repeat their numbers.
    "mcmahan_unpadded": mcmahan_unpadded,
    "mcmahan_2nn": mcmahan_2nn,
    # For tests and laptops.
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "cnn_bn": cnn_bn,
    # For series.
    "cnn1d": cnn1d,
    "gru": gru,
    # For tokens.
    "fasttext": text.fasttext,
    "text_cnn": text.text_cnn,
    "text_gru": text.text_gru,
    "text_lstm": text.text_lstm,
    "text_transformer": text.text_transformer,
}
FAMILIES: dict[str, Callable[[str], Builder]] = {
    **dict.fromkeys(zoo.FAMILIES, zoo.find),
    "transformers": transformers.find,
}
"""Functions that return the builder for a name, by the library's name before the colon."""


def find(name: str) -> Builder:
    """Return the builder of an architecture: of `MODELS`, a library or a dotted path. Raises InputError if unknown."""
    if is_family(name):
        return FAMILIES[name.partition(":")[0]](name)
    if name not in MODELS and not is_path(name):
        raise unknown("model", name, MODELS)
    builder: Builder = MODELS.get(name) or load(name, "model")
    if not callable(builder):
        raise InputError(f"{name!r} is not a model: it must be a function of (shape, classes).")
    return builder


def is_family(name: str) -> bool:
    """Return whether an architecture is a model of torchvision, timm or transformers."""
    return name.partition(":")[0] in FAMILIES


def is_own(name: str) -> bool:
    """Return whether an architecture is a user's own builder, which is given by a dotted path."""
    return name not in MODELS and not is_family(name)


def module_of(name: str) -> str:
    """Return the name of the module that defines the architecture `name`."""
    if name in MODELS:
        return MODELS[name].__module__
    first = name.partition(":")[0]
    return FAMILIES[first].__module__ if first in FAMILIES else first


def libraries(names: Iterable[str]) -> dict[str, str]:
    """Return what the results of architectures depend on besides this package: library versions and folder hashes."""
    given = list(names)
    found = {"timm": version("timm")} if any(name.startswith("timm:") for name in given) else {}
    if folders := [name for name in given if transformers.is_one(name)]:
        found["transformers"] = version("transformers")
        found |= {name: transformers.fingerprint(name) for name in folders}
    return found


def build(name: str, shape: Shape, classes: int, weights: Mapping[str, Params] | None = None) -> nn.Module:
    """Return a new model in training mode, with weights drawn from torch's global generator.

    Args:
        name: a key of `MODELS`, ``torchvision:<name>``, ``timm:<name>``, ``transformers:<folder>``, or a dotted path.
        shape: the shape of one input: (channels, height, width) of an image, (channels, length) of a series,
            (features,) of a vector, or a `TokenShape` of a text.
        classes: the number of logits, at least 2.
        weights: pretrained weights by architecture, which replace drawn weights; see `pretrained.load`.

    Raises:
        InputError: if the architecture is unknown or does not support these inputs, if there are fewer than 2 classes,
            if weights do not fit, or if a user's model cannot be trained.

    Example:
        >>> torch.manual_seed(0)
        >>> build("lenet", (3, 32, 32), classes=10)(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 10])
    """
    builder = find(name)
    if classes < 2:
        raise InputError(f"No model takes classes={classes!r}; at least 2 are needed: give the number of labels.")
    plain = shape if isinstance(shape, TokenShape) else tuple(shape)
    ours = name in MODELS or is_family(name)
    model = builder(plain, classes) if ours else own.build(name, builder, plain, classes)
    if weights and name in weights:
        pretrained.load(name, model, weights[name])
    return model
