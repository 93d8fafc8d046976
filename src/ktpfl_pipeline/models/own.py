"""Models of the user, named by a dotted path. Each model is checked before it is trained."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import called, raised
from ktpfl_pipeline.models.shapes import TRIED, example, sides

Builder = Callable[[Shape, int], nn.Module]


def build(name: str, builder: Builder, shape: Shape, classes: int) -> nn.Module:
    """Return a new model, with weights drawn from torch's global generator.

    A model is checked once per process, see `check`; the check does not change the global generator. On torch's device
    ``meta``, where only names and shapes are needed, the model is not checked. Raises InputError if the model cannot be
    built, or fails a check.
    """
    asked = torch.get_default_device()
    if asked.type == "meta":
        try:
            return _made(name, builder, shape, classes)
        except InputError:  # a builder may compute with values, which this device lacks
            with rng.seeded(0), torch.device("cpu"):
                return _made(name, builder, shape, classes)
    key = (name, id(builder), shape, getattr(shape, "vocabulary", 0), classes)
    if key not in TRIED:
        with rng.seeded(0), torch.device("cpu"), torch.enable_grad():
            check(name, _made(name, builder, shape, classes), shape, classes)
        TRIED.add(key)
    return _made(name, builder, shape, classes)


def check(name: str, model: nn.Module, shape: Shape, classes: int) -> None:
    """Check that a model can be trained, with forward passes and a backward pass. The model is not used afterwards.

    Raises InputError if the model has no trainable parameters or unsupported tensors, if its output is not (2, classes)
    logits with gradients, or if its output changes in evaluation mode.
    """
    if lazy := [key for key, each in _tensors(model) if nn.parameter.is_lazy(each)]:
        raise InputError(
            f"The model {name!r} has no shape for {lazy[0]} before its first input: use layers with given "
            "sizes, such as nn.Linear, instead of lazy ones."
        )
    parameters = dict(model.named_parameters())
    if not parameters:
        raise InputError(f"The model {name!r} has no parameters, so that nothing could be trained: give it layers.")
    parameters = {key: each for key, each in parameters.items() if each.requires_grad}
    if not parameters:
        raise InputError(
            f"The model {name!r} has requires_grad=False for all of its parameters, so that nothing could be trained: "
            "leave some of them trainable."
        )
    _check_tensors(name, model)
    model.float()
    for training in (False, True):
        output = _output(name, model.train(training), shape)
        if not isinstance(output, Tensor) or output.shape != (2, classes) or not output.is_floating_point():
            raise InputError(
                f"The model {name!r} returned {called(output)} for two inputs of {sides(shape)}; it must return "
                f"logits, a tensor of (2, {classes}), one number for each of the {classes} classes."
            )
    if not output.requires_grad:  # output of the model in training mode
        raise InputError(f"The model {name!r} returned logits that have no gradient: compute them without detaching.")
    try:
        found = torch.autograd.grad(output.sum(), [*parameters.values()], allow_unused=True)
    except RuntimeError as error:
        raise InputError(f"The model {name!r} has no gradient ({raised(error, name)}): correct it.") from error
    if unused := [key for key, gradient in zip(parameters, found, strict=True) if gradient is None]:
        raise InputError(
            f"The model {name!r} does not use {unused[0]} for its logits, so that it has no gradient: leave it out, or "
            "set its requires_grad to False."
        )
    _check_repeats(name, model, shape)


def _check_tensors(name: str, model: nn.Module) -> None:
    """Raise InputError for tensors that cannot be averaged, sent or loaded: complex, sparse or overlapping tensors."""
    tensors = dict(_tensors(model))
    if odd := [key for key, each in tensors.items() if each.is_complex() or each.layout is not torch.strided]:
        raise InputError(
            f"The model {name!r} has {odd[0]} of {str(tensors[odd[0]].dtype).removeprefix('torch.')} "
            f"({str(tensors[odd[0]].layout).removeprefix('torch.')}); a model's tensors are dense and real: store "
            "real and imaginary parts as two tensors, or a dense one."
        )
    places: dict[int, str] = {}
    for key, each in model.named_parameters():
        other = places.setdefault(each.untyped_storage().data_ptr() if each.numel() else id(each), key)
        if other != key:
            raise InputError(
                f"The model {name!r} has {key} in the memory of {other}, and they are two tensors: assign the "
                "parameter itself to share it (b.weight = a.weight), or clone it."
            )


def _check_repeats(name: str, model: nn.Module, shape: Shape) -> None:
    """Raise InputError if a model in evaluation mode returns different logits for the same inputs."""
    inputs = example(shape, 2) + 1
    with torch.no_grad():
        one, other = (model.eval()(inputs.clone()) for _ in range(2))
    if not torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise InputError(
            f"The model {name!r} returned other logits for the same inputs in evaluation mode, so that no evaluation "
            "could be repeated: draw at random only while self.training, as in F.dropout(x, p, self.training), and "
            "change no buffer otherwise."
        )


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


def _output(name: str, model: nn.Module, shape: Shape) -> Any:
    try:
        return model(example(shape, 2))
    except Exception as error:  # whatever the user's own code raises
        raise InputError(
            f"The model {name!r} does not take inputs of {sides(shape)}; it raised {raised(error, name)}: correct it, "
            "or choose another model or size of the inputs."
        ) from error


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*chain(model.named_parameters(), model.named_buffers())]
