"""Models of the user, named by a dotted path. `core.model_trial` tries them before they are trained."""

from collections.abc import Callable

import torch
from torch import nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import called, raised
from ktpfl_pipeline.models.shapes import sides

Builder = Callable[[Shape, int], nn.Module]


def build(name: str, builder: Builder, shape: Shape, classes: int) -> nn.Module:
    """Return a new model, with weights drawn from torch's global generator.

    On torch's device ``meta``, where only names and shapes are needed, the generator is left as it was. Raises
    InputError if the model cannot be built.
    """
    if torch.get_default_device().type == "meta":
        try:
            return _made(name, builder, shape, classes)
        except InputError:  # a builder may compute with values, which this device lacks
            with rng.seeded(0), torch.device("cpu"):
                return _made(name, builder, shape, classes)
    return _made(name, builder, shape, classes)


def _made(name: str, builder: Builder, shape: Shape, classes: int) -> nn.Module:
    try:
        model = builder(shape, classes)
    except InputError:
        raise
    except Exception as error:  # whatever the user's own code raises
        raise InputError(
            f"The model {name!r} cannot be built for inputs of {sides(shape)} and {classes} classes; it raised "
            f"{raised(error, name)}: it must be a function of (shape, classes) that takes these."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"The builder {name!r} returned {called(model)}; it must return a torch.nn.Module.")
    return model
