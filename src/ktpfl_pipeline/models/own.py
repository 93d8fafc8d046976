"""Models of one's own, given by a dotted path: each is tried before it is trained."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import raised

Builder = Callable[[Shape, int], nn.Module]
_FITTING: set[tuple[str, int, Shape, int]] = set()
"""What was found to be a model of a shape and a number of classes, with its builder's id: each is tried once."""


def build(name: str, builder: Builder, shape: Shape, classes: int) -> nn.Module:
    """Return a new model, its weights drawn from torch's global generator, which no trial moves.

    On torch's device ``meta``, where it is asked for its names and shapes alone, it is made and not tried.

    Raises:
        InputError: if it cannot be made, or is no model of these inputs and classes; see `check`.
    """
    asked = torch.get_default_device()
    if asked.type == "meta":
        try:
            return _made(name, builder, shape, classes)
        except InputError:  # some compute with numbers while they are built, which this device has not
            with rng.seeded(0), torch.device("cpu"):
                return _made(name, builder, shape, classes)
    key = (name, id(builder), shape, classes)
    if key not in _FITTING:
        with rng.seeded(0), torch.device("cpu"), torch.enable_grad():
            check(name, _made(name, builder, shape, classes), shape, classes)
        _FITTING.add(key)
    return _made(name, builder, shape, classes)


def check(name: str, model: nn.Module, shape: Shape, classes: int) -> None:
    """Check that a model, which is thrown away after it, can be trained: with two inputs, forth and back.

    Raises:
        InputError: naming the model, what came out and what is expected.
    """
    if lazy := [key for key, each in _tensors(model) if nn.parameter.is_lazy(each)]:
        raise InputError(
            f"The model {name!r} has no shape for {lazy[0]} before its first input: take layers that are told their "
            "sizes, such as nn.Linear, in the place of lazy ones."
        )
    parameters = dict(model.named_parameters())
    if not parameters:
        raise InputError(f"The model {name!r} has no parameters, so that nothing could be trained: give it layers.")
    if frozen := [key for key, each in parameters.items() if not each.requires_grad]:
        raise InputError(
            f"The model {name!r} has requires_grad=False for {frozen[0]}; all parameters of a model are trained: leave "
            "that out, or register what stays as it is with register_buffer."
        )
    model.float()
    for training in (False, True):
        output = _output(name, model.train(training), shape)
        if not isinstance(output, Tensor) or output.shape != (2, classes) or not output.is_floating_point():
            raise InputError(
                f"The model {name!r} returned {_called(output)} for two inputs of {_sides(shape)}; it must return "
                f"logits, a tensor of (2, {classes}), one number for each of the {classes} classes."
            )
    if not output.requires_grad:
        raise InputError(f"The model {name!r} returned logits that have no gradient: compute them without detaching.")
    try:
        found = torch.autograd.grad(output.sum(), [*parameters.values()], allow_unused=True)
    except RuntimeError as error:
        raise InputError(f"The model {name!r} has no gradient ({raised(error, name)}): correct it.") from error
    if unused := [key for key, gradient in zip(parameters, found, strict=True) if gradient is None]:
        raise InputError(
            f"The model {name!r} does not use {unused[0]} for its logits, so that it has no gradient: leave it out."
        )


def _made(name: str, builder: Builder, shape: Shape, classes: int) -> nn.Module:
    try:
        model = builder(shape, classes)
    except InputError:
        raise
    except Exception as error:  # whatever the user's own code raises
        raise InputError(
            f"The model {name!r} cannot be built for inputs of {_sides(shape)} and {classes} classes; it raised "
            f"{raised(error, name)}: it must be a function of (shape, classes) that takes these."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"The builder {name!r} returned {_called(model)}; it must return a torch.nn.Module.")
    return model


def _output(name: str, model: nn.Module, shape: Shape) -> Any:
    try:
        return model(torch.zeros(2, *shape))
    except Exception as error:  # whatever the user's own code raises
        raise InputError(
            f"The model {name!r} does not take inputs of {_sides(shape)}; it raised {raised(error, name)}: correct it, "
            "or choose another model or size of the inputs."
        ) from error


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*chain(model.named_parameters(), model.named_buffers())]


def _called(value: object) -> str:
    """Return what something that is no model's output, or no model, is called in messages."""
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"a tensor of {tuple(value.shape)}{kind}"
    return "None" if value is None else f"a {type(value).__name__}"


def _sides(shape: Shape) -> str:
    return " x ".join(map(str, shape))
