"""Pretrained weights from a file: no code in the file is run, and weights are loaded where name and shape fit."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.errors import InputError, check_installed, plural, used_up
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.weights import Params, tied_names

TOO_LARGE = "give weights of the architecture that is trained"
LIGHTNING = "model."
"""The prefix of tensor names in files of Lightning, and in this package's models of transformers."""


def read(file: Path) -> dict[str, Tensor]:
    """Return the weights in a file of torch or safetensors: tensors by name.

    A file of torch contains a mapping of tensors, or a mapping that has it under the key ``state_dict``,
    ``model_state_dict`` or ``model``. Raises InputError if the file does not exist, is too large, cannot be read
    safely, or contains anything but tensors.
    """
    if not file.is_file():
        raise InputError(f"there is no file {file}: correct the path of the pretrained weights.")
    _check_size(file)
    try:
        safetensors = file.suffix == ".safetensors"
        found: Any = _safetensors(file) if safetensors else torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # damaged or malicious files can cause any error
        if used_up(error):
            raise  # out of memory: the file may be valid
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
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in found.values())  # strides of 0 enlarge it
    resources.check_claim(file, claimed, TOO_LARGE, "weights")
    return {str(name).removeprefix("module."): tensor.detach().contiguous() for name, tensor in found.items()}


def _check_size(file: Path) -> None:
    """Raise InputError if the parts of a zip archive, which torch writes, are too large after unpacking."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
        resources.check_claim(file, unpacked, TOO_LARGE, "weights")


def _plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_quantized or value.is_meta)


def _safetensors(file: Path) -> dict[str, Tensor]:
    check_installed(str(file), "safetensors")
    from safetensors.torch import load_file

    found: dict[str, Tensor] = load_file(file)
    return found


def load(name: str, module: nn.Module, weights: Params) -> int:
    """Load the `weights` whose names and shapes fit a module, and return the number of loaded parameters.

    Other parameters of the module keep their values, such as the output layer. The prefix ``model.`` of names is
    removed or added if more names fit then. Tied weights may have either name in the file. Raises InputError if no
    parameter of the architecture `name` fits, or a fitting weight is NaN or infinite.
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
    digest = hashlib.sha256()
    for name, own in sorted(weights.items()):
        for key, tensor in own.items():
            digest.update(f"{name}:{key}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
