"""Models of torchvision and timm, without pretrained weights, adapted to the inputs and the number of classes."""

from bisect import bisect_left
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError, check_installed, unknown
from ktpfl_pipeline.models import shapes

FAMILIES = ("torchvision", "timm")
LARGEST = 600  # pixels per side: the limit of the search for the smallest size of a model
MAXVIT = 224  # windows of 7 x 7 must tile a feature map whose sides are halved five times


def find(name: str) -> Callable[[Shape, int], nn.Module]:
    """Return the builder of ``torchvision:<name>`` or ``timm:<name>``.

    Raises InputError if there is no such model, or timm is not installed.
    """
    family, _, model = name.partition(":")
    if family == "timm":
        check_installed(name, "timm", otherwise="take another model")
    if model not in (known := known_names(family)):
        near = get_close_matches(model, known, n=12, cutoff=0.3)  # timm has more than a thousand models
        raise unknown(f"{family}'s model", model, near or known)
    return partial(build, family, model)


@cache
def known_names(family: str) -> list[str]:
    """Return the names of all models of a family; for torchvision, the names of its image classifiers."""
    if family == "timm":
        import timm

        return list(timm.list_models())
    from torchvision import models

    return list(models.list_models(module=models))


def build(family: str, name: str, shape: Shape, classes: int) -> nn.Module:
    """Return a new model whose first convolution and output layer are adapted to `shape` and `classes`.

    Raises InputError if the model does not support inputs of this shape.
    """
    full = f"{family}:{name}"
    image = shapes.image(full, shape, least=1)
    with torch.device("cpu"):  # building may need values, which the device meta lacks
        model = (_timm if family == "timm" else _torchvision)(name, image, classes)
    if (full, image) not in shapes.TRIED:
        check(full, model, image)
        shapes.TRIED.add((full, image))
    return model


def _torchvision(name: str, image: Shape, classes: int) -> nn.Module:
    """Return a model of torchvision, without auxiliary heads, so that it returns only logits."""
    from torchvision import models

    channels, height, width = image
    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": True}
    elif name.startswith("vit_"):
        patch = int(name.rpartition("_")[2])
        if height != width or height % patch:
            raise _tiling(name, image, patch, " and as wide as high")
        options = {"image_size": height}
    elif name.startswith("maxvit_"):
        if height % MAXVIT or width % MAXVIT:
            raise _tiling(name, image, MAXVIT)
        options = {"input_size": (height, width)}
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes, **options)
    if channels != 3:
        _fit_first_convolution(model, channels)
    return model


def _tiling(name: str, image: Shape, step: int, square: str = "") -> InputError:
    height, width = image[1:]
    return InputError(
        f"torchvision:{name} takes images whose sides are multiples of {step} pixels{square}; these are {height} x "
        f"{width}: set image.size to {max(step, round(height / step) * step)}, or choose another model."
    )


def _timm(name: str, image: Shape, classes: int) -> nn.Module:
    """Return a model of timm, built for the size of the images if the model depends on the size."""
    import timm

    channels, *size = image
    options = {"pretrained": False, "num_classes": classes, "in_chans": channels}
    try:
        try:
            model: nn.Module = timm.create_model(name, img_size=tuple(size), **options)
        except TypeError:  # the model has no parameter img_size
            model = timm.create_model(name, **options)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise _refused(f"timm:{name}", image, error) from None
    return model


def _fit_first_convolution(model: nn.Module, channels: int) -> None:
    """Replace the first convolution by a convolution with `channels` input channels and torch's default weights."""
    path, old = next((path, part) for path, part in model.named_modules() if isinstance(part, nn.Conv2d))
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]  # pairs in a module
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    model.set_submodule(path, new)


def check(name: str, model: nn.Module, image: Shape) -> None:
    """Check that a model supports images of a shape, on torch's device ``meta``, which computes only shapes.

    Raises InputError otherwise. The message has the smallest supported size, or the library's error if none is found.
    """
    tensors = chain(model.named_parameters(), model.named_buffers())
    without_numbers = {key: tensor.to("meta") for key, tensor in tensors}

    def refusal(shape: Shape) -> Exception | None:
        model.eval()  # on meta, several times faster than training mode
        try:
            functional_call(model, without_numbers, (torch.empty(2, *shape, device="meta"),))
        except (RuntimeError, ValueError, AssertionError, TypeError) as error:
            return error
        finally:
            model.train()
        return None

    if (error := refusal(image)) is None:
        return
    channels, *sides = image
    larger = range(min(sides) + 1, LARGEST)
    place = bisect_left(larger, True, key=lambda size: not refusal((channels, size, size)))
    if place == len(larger):
        raise _refused(name, image, error)
    raise shapes.too_small(name, image, larger[place])


def _refused(name: str, image: Shape, error: Exception) -> InputError:
    """Return the error for a model that does not support these images, with the library's message."""
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    sides = shapes.sides(image)
    return InputError(f"{name} cannot be built for images of {sides} ({reason}): choose another model or image.size.")
