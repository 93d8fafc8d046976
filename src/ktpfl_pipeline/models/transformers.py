"""Classifiers of the library transformers from a local folder, such as ``transformers:my/bert``.

Only `config.json` and weights in the format safetensors are read. No code in the folder is run, and nothing is
downloaded.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.core.errors import InputError, check_installed, plural
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.text import counting

logger = logging.getLogger(__name__)
FAMILY = "transformers:"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def is_one(name: str) -> bool:
    return name.startswith(FAMILY)


def folder_of(name: str) -> Path:
    """Return the absolute path of the folder in an architecture's name. Relative paths start at the current folder."""
    return Path(name.removeprefix(FAMILY)).expanduser().absolute()


def find(name: str) -> Callable[[Shape, int], nn.Module]:
    """Return the builder of ``transformers:<folder>``.

    Raises InputError if the folder has no configuration, or the library is not installed.
    """
    folder = folder_of(name)
    if not (folder / CONFIG).is_file():
        raise InputError(
            f"{name}: {folder} has no {CONFIG}: give the folder that save_pretrained of a model wrote, relative to the"
            " current folder."
        )
    check_installed(name, "transformers", "safetensors")
    return partial(build, name)


def weights(names: Iterable[str]) -> dict[str, str]:
    """Return the file of weights of each architecture of transformers whose folder has one, by architecture.

    Raises InputError if a folder has weights in another form than one safetensors file.
    """
    found = {}
    for name in filter(is_one, names):
        folder = folder_of(name)
        if (folder / WEIGHTS).is_file():
            found[name] = str(folder / WEIGHTS)
        elif (folder / INDEX).is_file():
            raise InputError(f"{name}: its weights are in several files: save them in one, as {WEIGHTS}.")
        elif others := sorted(file.name for file in folder.glob("*.bin")):
            raise InputError(
                f"{name}: its weights are in {others[0]}, a pickle, which could run code when read: save them as"
                f" {WEIGHTS}, with save_pretrained(folder, safe_serialization=True)."
            )
        else:
            logger.warning("%s has no %s: its clients start from drawn weights.", name, WEIGHTS)
    return found


def fingerprint(name: str) -> str:
    """Return a hash of an architecture's configuration. `pretrained.fingerprint` returns the hash of its weights."""
    return hashlib.sha256((folder_of(name) / CONFIG).read_bytes()).hexdigest()[:16]


def build(name: str, shape: Shape, classes: int) -> nn.Module:
    """Return a new classifier with drawn weights; `pretrained.load` loads the weights of the folder.

    Raises InputError if the model does not support the length or the vocabulary of the texts.
    """
    texts = shapes.tokens(name, shape)
    with torch.device("cpu"):  # building may need values, which the device meta lacks
        return Classifier(name, texts, classes)


_ITS_OWN = ("num_labels", "id2label", "label2id", "problem_type", "torch_dtype", "dtype")
"""Settings of classes and precision in a configuration, which the federation's settings replace."""


@cache
def _read(file: Path, changed: int) -> dict[str, Any]:
    """Return a configuration. It is cached until the file's modification time, `changed`, differs."""
    resources.check_claim(file, file.stat().st_size * 10, "give the config.json of a model", "configuration")
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise InputError(f"{file} is not JSON ({error}): give the configuration that save_pretrained wrote.") from error
    if not isinstance(found, dict) or "model_type" not in found:
        raise InputError(f"{file} has no 'model_type': give the configuration that save_pretrained wrote.")
    if found.get("auto_map"):
        raise InputError(f"{file} asks to run its own code (auto_map), which is not allowed: choose another model.")
    return found


class Classifier(nn.Module):
    """A classifier of transformers, which maps token ids to logits."""

    # excludes DP-SGD: positions are embedded once per batch, so there are no gradients per sample
    without_single_gradients = True

    def __init__(self, name: str, shape: TokenShape, classes: int) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModelForSequenceClassification

        file = folder_of(name) / CONFIG
        given = {key: each for key, each in _read(file, file.stat().st_mtime_ns).items() if key not in _ITS_OWN}
        try:
            config = AutoConfig.for_model(**given, num_labels=classes)
        except Exception as error:  # a configuration can cause any error
            raise _refused(name, shape, error) from error
        known = getattr(config, "vocab_size", None)
        if known is not None and known < shape.vocabulary:
            raise InputError(
                f"{name} embeds {known:,} tokens, and the vocabulary has {shape.vocabulary:,}: set text.tokenizer to"
                " the tokenizer.json of this model, or lower text.vocabulary."
            )
        places = getattr(config, "max_position_embeddings", None)
        if places is not None and places < shape[0]:
            raise InputError(
                f"{name} takes texts of at most {places} tokens, and these have {shape[0]}: set text.length to {places}"
                " or less."
            )
        self.padding = shape.padding
        if shape.padding is not None or getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = shape.padding
        config.use_cache = False
        try:
            family: Any = AutoModelForSequenceClassification
            self.model: Any = family.from_config(config, attn_implementation="eager")
            self._try(name, shape, classes)
        except InputError:
            raise
        except Exception as error:
            raise _refused(name, shape, error) from error

    def _try(self, name: str, shape: TokenShape, classes: int) -> None:
        if (key := (name, shape, shape.vocabulary, classes)) in shapes.TRIED:
            return
        with torch.no_grad():
            found = self.eval()(shapes.example(shape, 2))
        if found.shape != (2, classes):
            raise InputError(
                f"{name} returned {tuple(found.shape)} for 2 texts, not (2, {classes}): choose a model that classifies."
            )
        shapes.TRIED.add(key)
        self.train()

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits, (n, classes), for texts, (n, L)."""
        counted = counting(ids, self.padding)
        logits: Tensor = self.model(input_ids=ids, attention_mask=counted.to(ids.dtype)).logits
        return logits


def _refused(name: str, shape: Shape, error: Exception) -> InputError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")[:200]
    return InputError(
        f"{name} cannot be built for texts of {plural(shape[0], 'token')} ({reason}): choose the folder of another"
        " model."
    )
