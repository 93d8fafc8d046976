"""The model that a client keeps from a run: a folder with its weights and with what is needed to use them.

from ktpfl_flower.client.kept import load

model = load("kept/client-0/kt_pfl-seed-0")
probabilities = model.predict(model.read("npz:new.npz"))  # (B, K), in the order of model.class_names
"""

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower.alike import prepared
from ktpfl_flower.client.client_file import understood
from ktpfl_pipeline.analysis.serving import Served
from ktpfl_pipeline.config.schema import Image
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources import Reading, load_with_vocabulary

WEIGHTS, ABOUT = "model.pt", "about.json"


def save(folder: Path, weights: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write a model's complete weights, as in `state_dict`, and the facts about it, which `load` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS, f"The model {folder / WEIGHTS}") as partial:
        torch.save({name: tensor.cpu() for name, tensor in weights.items()}, partial)
    with replacing(folder / ABOUT, f"The facts {folder / ABOUT}") as partial:
        partial.write_text(json.dumps(about, indent=1), encoding="utf-8")


class Kept:
    """A client's model, in evaluation mode.

    Attributes:
        about: the facts in plain values: ``method``, ``client``, ``name``, ``architecture``, ``class_names`` and more.
        class_names: (K,) the names of the classes.
        columns: (F,) the names of the features of vectors; None if they have none.
        module: the model, which takes numbers as in training; `predict` prepares them.
    """

    def __init__(self, about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Build the model."""
        self.about, self._served = about, Served(about)
        self.class_names, self.columns = list(about["class_names"]), self._served.columns
        self.module = self._served.model(about["architecture"], weights)

    def read(self, source: str, folder: Path = Path()) -> Tensor:
        """Return the inputs of a source, with or without labels, as `predict` takes them, (B, ...).

        Args:
            source: as in a client's file: ``npz:new.npz``, ``folder:new_images``.
            folder: where relative paths start.

        Raises:
            InputError: if the source cannot be read.
        """
        given = self.about["image"]
        image = None if given is None else understood(Image, given, ABOUT)
        text = understood(Text, self.about["text"], ABOUT)
        inputs, known = load_with_vocabulary(source, folder, Reading.of(image, text))
        return prepared(inputs, known, source, image)[0]

    def predict(self, inputs: Any) -> Tensor:
        """Return the class probabilities, (B, K), for inputs, (B, ...), which are not standardized.

        Raises:
            InputError: if their shape is another one, a feature is NaN or infinite, or a token id does not exist.
        """
        return self._served.predict(self.module, self._served.numbers(torch.as_tensor(inputs)))


def load(folder: str | Path) -> Kept:
    """Return the model in a folder that a client wrote at the end of a run.

    Raises:
        InputError: if the folder is not such a folder.
    """
    place = Path(folder)
    try:
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        return Kept(about, torch.load(place / WEIGHTS, weights_only=True, map_location="cpu"))
    except (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, UnpicklingError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{place} has no model that can be used ({error}). Give a folder such as kept/client-0/kt_pfl-seed-0."
        ) from error
