"""The models, one file per kind of input or library, and the registry `MODELS`.

A model maps numbers, (n, ...), or token ids, (n, length), to logits, (n, classes). Its initial weights are drawn from
torch's global generator, which the caller seeds. To add a model, write a builder and add one line to `MODELS`. A model
outside this package is named by its dotted path, ``my_package.nets:wide_mlp``. Models of other libraries are named
``torchvision:<name>``, ``timm:<name>`` or ``transformers:<folder>``. A library is imported when one of its models is
built.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.extensions import called, is_path, load, raised

if TYPE_CHECKING:
    from torch import nn

    from ktpfl_pipeline.core.dataset import Shape
    from ktpfl_pipeline.core.weights import Params

Builder = Callable[["Shape", int], "nn.Module"]
"""``builder(shape, classes)`` returns a new model for inputs of `shape`, such as (channels, height, width).

The shape of a text, (length,), has the attributes ``vocabulary`` and ``padding``; see `core.dataset.TokenShape`.
"""

MODELS: dict[str, str] = {
    # The paper's four heterogeneous architectures.
    "lenet": "images:lenet",
    "alexnet": "images:alexnet",
    "resnet18": "images:resnet18",
    "shufflenet_v2": "images:shufflenet_v2",
    # The paper's homogeneous architecture.
    "mcmahan_cnn": "images:mcmahan_cnn",
    # Other projects' models for images of one channel, to repeat their numbers.
    "mcmahan_unpadded": "images:mcmahan_unpadded",
    "mcmahan_2nn": "numbers:mcmahan_2nn",
    # For tests and laptops.
    "logistic": "numbers:logistic",
    "mlp": "numbers:mlp",
    "cnn": "images:cnn",
    "cnn_bn": "images:cnn_bn",
    # For series.
    "cnn1d": "numbers:cnn1d",
    "gru": "numbers:gru",
    # For tokens.
    "fasttext": "text:fasttext",
    "text_cnn": "text:text_cnn",
    "text_gru": "text:text_gru",
    "text_lstm": "text:text_lstm",
    "text_transformer": "text:text_transformer",
}
"""The module and the builder of each architecture. Listing the names does not import torch."""
FAMILIES = {"torchvision": "zoo", "timm": "zoo", "transformers": "transformers"}
"""The modules that find the builders of other libraries' models, by the library's name before the colon."""


def find(name: str) -> Builder:
    """Return the builder of an architecture: of `MODELS`, a library or a dotted path. Raises InputError if unknown."""
    builder: Builder
    if is_family(name):
        builder = importlib.import_module(module_of(name)).find(name)
    elif name in MODELS:
        builder = getattr(importlib.import_module(module_of(name)), MODELS[name].partition(":")[2])
    elif is_path(name):
        builder = load(name, "model")
    else:
        raise unknown("model", name, MODELS)
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
    first = name.partition(":")[0]
    module = MODELS[name].partition(":")[0] if name in MODELS else FAMILIES.get(first)
    return f"{__name__}.{module}" if module else first


def for_texts(name: str) -> bool:
    """Return whether an architecture is known to take only ids of tokens."""
    return module_of(name) in (f"{__name__}.text", f"{__name__}.transformers")


def libraries(names: Iterable[str]) -> dict[str, str]:
    """Return what the results of architectures depend on besides this package: library versions and folder hashes."""
    from ktpfl_pipeline.models import transformers

    given = list(names)
    found = {"timm": version("timm")} if any(name.startswith("timm:") for name in given) else {}
    if folders := [name for name in given if transformers.is_one(name)]:
        found["transformers"] = version("transformers")
        found |= {name: transformers.fingerprint(name) for name in folders}
    return found


def build(name: str, shape: "Shape", classes: int, weights: "Mapping[str, Params] | None" = None) -> "nn.Module":
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
    from ktpfl_pipeline.core.dataset import TokenShape
    from ktpfl_pipeline.models import pretrained

    builder = find(name)
    if classes < 2:
        raise InputError(f"No model takes classes={classes!r}; at least 2 are needed: give the number of labels.")
    plain = shape if isinstance(shape, TokenShape) else tuple(shape)
    ours = name in MODELS or is_family(name)
    model = builder(plain, classes) if ours else _built(name, builder, plain, classes)
    if weights and name in weights:
        pretrained.load(name, model, weights[name])
    return model


def _built(name: str, builder: Builder, shape: "Shape", classes: int) -> "nn.Module":
    """Return a new model of a user's own builder, which `core.model_trial` tries before it is trained.

    On torch's device ``meta``, where only names and shapes are needed, the generator is left as it was. Raises
    InputError if the model cannot be built.
    """
    import torch

    from ktpfl_pipeline.core import rng

    if torch.get_default_device().type == "meta":
        try:
            return _made(name, builder, shape, classes)
        except InputError:  # a builder may compute with values, which this device lacks
            with rng.seeded(0), torch.device("cpu"):
                return _made(name, builder, shape, classes)
    return _made(name, builder, shape, classes)


def _made(name: str, builder: Builder, shape: "Shape", classes: int) -> "nn.Module":
    from torch import nn

    from ktpfl_pipeline.models import shapes

    try:
        model = builder(shape, classes)
    except InputError:
        raise
    except Exception as error:  # whatever the user's own code raises
        raise InputError(
            f"The model {name!r} cannot be built for inputs of {shapes.sides(shape)} and {classes} classes; it raised "
            f"{raised(error, name)}: it must be a function of (shape, classes) that takes these."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"The builder {name!r} returned {called(model)}; it must return a torch.nn.Module.")
    return model
