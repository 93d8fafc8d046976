"""Saved models of clients: the facts stored with the weights, and predictions for inputs as the source has them.

Weights are read with ``weights_only``, and models are built by the registry, so no code in a folder is run. A model of
a user's own code is only built if the caller names the code.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline import models
from ktpfl_pipeline.core import joint, kinds
from ktpfl_pipeline.core.dataset import LabeledDataset, TokenShape, Vocabulary
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.model_facts import facts_of
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.tokens import check_ids
from ktpfl_pipeline.data.standardization import Fitted, of_plain


def facts(
    samples: LabeledDataset, classes: int, scale: Fitted | None = None, reading: Reading = AS_THEY_ARE
) -> dict[str, Any]:
    """Return, as plain values, what `Served` and `inputs` need to know about the inputs of a federation's models.

    Args:
        samples: samples in the form of the source; their number does not matter.
        classes: K, the number of classes.
        scale: the quantities fitted to the training samples; None if there are none.
        reading: how image files and texts were read.
    """
    known = samples.vocabulary
    return {
        "reading": {"size": reading.size, "window": reading.window, "text": asdict(reading.text)},
        "kind": samples.kind.name,
        "shape": list(samples.inputs.shape[1:]),
        "classes": classes,
        "class_names": samples.class_names and list(samples.class_names),
        "columns": samples.columns and list(samples.columns),
        "fill": fill_of(samples),
        "missing": list(samples.missing),
        "scale": scale and scale.plain(),
        "vocabulary": known and astuple(known),
    }


def fill_of(samples: LabeledDataset) -> list[float] | None:
    """Return the features' values where one is missing, (F,), of the table of the first sample; None if unknown."""
    fill = samples.fill
    return None if fill is None else [float(value) for value in fill.view(-1, fill.shape[-1])[0]]


class Served:
    """Builds saved models and prepares their inputs.

    Attributes:
        class_names: (K,) the names of the classes; their numbers if the source has none.
        columns: (F,) the names of the features of vectors; None if the source has none.
        fill: (F,) float32, the features' values where one is missing; None if the source has none.
        shape: the shape of an input in the form of the source.
    """

    def __init__(
        self, known: Mapping[str, Any], own: Collection[str] | None = (), named: Mapping[str, str] | None = None
    ) -> None:
        """Read what `facts` returned.

        Args:
            known: the facts.
            own: the architectures of a user's own code that may be imported; None: any.
            named: the architectures that are built instead of others, such as those whose folder has another path.
        """
        self._own, self._named = own, dict(named or {})
        self.class_names = known.get("class_names") or [str(label) for label in range(known["classes"])]
        self.columns = known.get("columns")
        self.fill = None if known.get("fill") is None else torch.tensor(known["fill"])
        self.scale = known["scale"] and of_plain(known["scale"])
        size, padding, words, *others = known["vocabulary"] or (0, None, None)
        self.vocabulary = Vocabulary(size, padding, words and tuple(words), *others) if size else None
        self.kind, self._classes, self.shape = kinds.KINDS[known["kind"]], known["classes"], tuple(known["shape"])

    def _build(self, name: str, shape: Any) -> nn.Module:
        if models.is_own(name) and self._own is not None and name not in self._own:
            raise InputError(
                f"The model is made by the code {name!r}, which is not part of this package: if you trust that code, "
                f"allow it by its name, --own-code {name}."
            )
        return models.build(self._named.get(name, name), shape, self._classes)

    def model(self, architecture: str, weights: Mapping[str, Tensor]) -> nn.Module:
        """Return a model of an architecture with complete weights, as in `state_dict`, in evaluation mode."""
        shape: Any = self.shape
        if (known := self.vocabulary) is not None:
            shape = TokenShape(shape, known.frequent or known.size, known.padding)
        build = partial(self._build, shape=shape)

        def head(name: str) -> str:
            found = facts_of(build, name, shape, self.kind, self._classes).head
            assert found is not None  # methods that replace or join heads check that there are heads
            return found.name

        built = joint.built(build, head, architecture, weights).eval()
        built.load_state_dict(weights)
        return built

    def numbers(self, inputs: Tensor) -> Tensor:
        """Return inputs, (B, ...) in the form of the source, as a model takes them.

        A missing value, NaN, is replaced by the value that `ktpfl convert csv` stored for its feature. Raises
        InputError if their shape is another one, a value is not finite and cannot be replaced, or a token id does not
        exist.
        """
        if inputs.dtype != self.kind.dtype and not (inputs.is_floating_point() and self.kind.standardized):
            raise InputError(f"The inputs are {inputs.dtype}, but the model takes {self.kind.name}: {self.kind.form}.")
        if tuple(inputs.shape[1:]) != self.shape or not len(inputs):
            raise InputError(
                f"The inputs have the shape {tuple(inputs.shape[1:])}, but the model takes {self.kind.name} of shape "
                f"{self.shape}. Give one or more of them, (B, ...)."
            )
        if inputs.is_floating_point():
            inputs = self._finite(inputs)
        if self.vocabulary is not None:
            check_ids(inputs, self.vocabulary.size, "the input")
        return self.kind.to_float(self.scale(inputs) if self.scale else inputs)

    def _finite(self, inputs: Tensor) -> Tensor:
        """Return features whose missing values are replaced. Raises InputError if a value is not finite."""
        if self.fill is not None and len(self.fill) == math.prod(self.shape):
            inputs = inputs.where(~inputs.isnan(), self.fill.view(self.shape))
        wrong = ~inputs.isfinite().flatten(1).all(dim=1)
        if wrong.any():
            raise InputError(
                f"Input {int(wrong.nonzero()[0])} (from 0) has a value that is not finite, and no value for missing "
                "ones is known: replace it. Tables that `ktpfl convert csv` converted have such values."
            )
        return inputs

    @torch.no_grad()
    def predict(self, model: nn.Module, numbers: Tensor) -> Tensor:
        """Return the class probabilities, (B, K), of a model for what `numbers` returned."""
        return torch.softmax(model(numbers), dim=1)
