"""Pretrained weights from a file of the user's own: read without running anything, and taken where they fit."""

import hashlib
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.errors import InputError, plural, used_up
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.weights import Params, tied_names

TOO_LARGE = "give weights of the architecture that is trained"
LIGHTNING = "model."
"""What Lightning, and this package with models of transformers, put before the names of a network's tensors."""


def read(file: Path) -> dict[str, Tensor]:
    """Return the weights in a file of torch or safetensors.

    torch's file holds a mapping of tensors, or has it as ``state_dict``, ``model_state_dict`` or ``model``. Raises
    InputError if there is no such file, or nothing but tensors can be read from it safely.
    """
    if not file.is_file():
        raise InputError(f"there is no file {file}: correct the path of the pretrained weights.")
    _check_size(file)
    try:
        safetensors = file.suffix == ".safetensors"
        found: Any = _safetensors(file) if safetensors else torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # whatever a damaged or hostile file brings about
        if used_up(error):
            raise  # the file may be whole
        reason = str(error).strip().partition("\n")[0][:200]
        raise InputError(
            f"{file} cannot be read as weights ({type(error).__name__}: {reason}): give a file with tensors only, as "
            "torch.save(model.state_dict(), file) writes; nothing in it may run code."
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(map(_plain, found.values())):
        raise InputError(f"{file} holds no weights: it must be a mapping of names to tensors, as state_dict() returns.")
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in found.values())  # strides of 0 claim more
    resources.check_claim(file, claimed, TOO_LARGE, "weights")
    return {str(name).removeprefix("module."): tensor.detach().contiguous() for name, tensor in found.items()}


def _check_size(file: Path) -> None:
    """Check that the parts of a zip archive, as torch writes, are not too large once they are unpacked."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
        resources.check_claim(file, unpacked, TOO_LARGE, "weights")


def _plain(value: Any) -> bool:
    """Return whether a value is a tensor whose numbers lie one after another."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_quantized or value.is_meta)


def _safetensors(file: Path) -> dict[str, Tensor]:
    if find_spec("safetensors") is None:
        raise InputError(f"{file} needs safetensors, which is not installed: pip install safetensors.")
    from safetensors.torch import load_file

    found: dict[str, Tensor] = load_file(file)
    return found


def load(name: str, module: nn.Module, weights: Params) -> int:
    """Load the `weights` whose names and shapes fit a module, and return the number of loaded parameters.

    Other parameters keep their values, such as the output layer, or a first convolution with other channels. The prefix
    ``model.``, with which Lightning stores a network, is removed if more names fit without it. Tied weights may have
    either name; if a file has both, the first one counts. Raises InputError if no parameter of the architecture `name`
    fits, or a value is not a number.
    """
    own, tied = module.state_dict(), tied_names(module)
    ways = [weights, {key.removeprefix(LIGHTNING): each for key, each in weights.items() if key.startswith(LIGHTNING)}]
    ways.append({LIGHTNING + key: each for key, each in weights.items()})
    found = [{key: each for key, each in way.items() if key in own and each.shape == own[key].shape} for way in ways]
    fitting = max(found, key=len)
    fitting = {**{tied[key]: each for key, each in fitting.items() if key in tied}, **fitting}
    fitting = {key: each for key, each in fitting.items() if key not in tied}
    taken = [key for key, _ in module.named_parameters() if key in fitting]
    if not taken:
        raise InputError(
            f"none of the {plural(len(weights), 'tensor')} of the pretrained weights of {name} fits the architecture "
            "by name and shape: give weights of this architecture."
        )
    if odd := [key for key, tensor in fitting.items() if not tensor.isfinite().all()]:
        raise InputError(f"the pretrained weights of {name} have NaN or infinite values in {odd[0]}: use another file.")
    module.load_state_dict(fitting, strict=False)
    return len(taken)


def fingerprint(weights: Mapping[str, Params]) -> str:
    """Return a hash of the weights of several architectures."""
    digest = hashlib.sha256()
    for name, own in sorted(weights.items()):
        for key, tensor in own.items():
            digest.update(f"{name}:{key}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
