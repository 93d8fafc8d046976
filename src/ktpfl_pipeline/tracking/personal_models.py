"""The personal models of a run as one MLflow model, which maps client ids and inputs to probabilities.

`mlflow models predict` and `mlflow models serve` load it, with ``--env-manager=local`` if this package is installed.
Weights are read with ``weights_only``, and models are built by the registry, so no code in the folder is run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline import models
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.client import joint
from ktpfl_pipeline.core.dataset import LabeledDataset, TokenShape, Vocabulary
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.model_facts import facts_of
from ktpfl_pipeline.data.sources.tokens import check_ids
from ktpfl_pipeline.data.standardization import Fitted, of_plain

NAME = "personal_models"
"""The name of the model's folder among the files of a run."""
WEIGHTS, CLIENTS = "weights.pt", "clients.json"


def save(
    folder: Path,
    weights: Mapping[int, Mapping[str, Tensor]],
    architectures: Mapping[int, str],
    examples: LabeledDataset,
    classes: int,
    scale: Fitted | None = None,
) -> None:
    """Write the models of a federation's clients to a new folder, as one MLflow model.

    Args:
        folder: the folder, which is created.
        weights: the complete model of each client by id, as in `state_dict`.
        architectures: the architecture of each client by id.
        examples: one sample of each of the first B clients, in the form of the source, as an example input.
        classes: K, the number of classes.
        scale: the quantities fitted to the training samples; None if there are none.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # mlflow reads the variable on import
    import mlflow.pyfunc
    import numpy as np
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    example, names, vocabulary = examples.inputs, examples.class_names, examples.vocabulary
    given = TensorSpec(example.numpy().dtype, (-1, *example.shape[1:]), "input")
    takes = Schema([TensorSpec(np.dtype("int64"), (-1,), "client"), given])
    gives = Schema([TensorSpec(np.dtype("float32"), (-1, classes))])
    folder.mkdir(parents=True)
    plain = {n: {name: each.cpu() for name, each in own.items()} for n, own in weights.items()}
    with replacing(folder / WEIGHTS, f"The clients' models, {folder / WEIGHTS},") as place, place.open("wb") as file:
        torch.save(plain, file)  # with a path, torch would hide the system's error message
    built = {"architectures": dict(architectures), "shape": example.shape[1:], "classes": classes}
    known = {"scale": scale and scale.plain(), "vocabulary": vocabulary and astuple(vocabulary)}
    fill = None if examples.fill is None else examples.fill.tolist()
    built |= {"kind": examples.kind.name, **known, "class_names": names, "columns": examples.columns, "fill": fill}
    (folder / CLIENTS).write_text(json.dumps(built), encoding="utf-8")
    metadata = None if names is None else {"class_names": list(names)}
    model = Model(signature=ModelSignature(takes, gives), metadata=metadata)
    mlflow.pyfunc.add_to_model(model, loader_module=__name__)
    model.save(folder / "MLmodel")
    tried = {"client": list(weights)[: len(example)], "input": example.tolist()}
    (folder / "input.json").write_text(json.dumps({"inputs": tried}), encoding="utf-8")


class PersonalModels:
    """The models of all clients by id, in evaluation mode, loaded from a folder that `save` wrote."""

    def __init__(self, folder: Path) -> None:
        built = json.loads((folder / CLIENTS).read_text(encoding="utf-8"))
        weights = torch.load(folder / WEIGHTS, weights_only=True, map_location="cpu")
        scale, shape = built["scale"], tuple(built["shape"])
        self.scale = scale and of_plain(scale)
        self.vocabulary: Vocabulary | None = None
        if given := built["vocabulary"]:
            self.vocabulary = known = Vocabulary(*given)
            shape = TokenShape(shape, known.frequent or known.size, known.padding)
        self.kind = kinds.KINDS[built["kind"]]
        self.fill = None if built["fill"] is None else torch.tensor(built["fill"])
        self.models = {}
        build = partial(models.build, shape=shape, classes=built["classes"])

        def head(architecture: str) -> str:
            found = facts_of(build, architecture, shape, self.kind, built["classes"]).head
            assert found is not None  # methods that replace or join heads check that there are heads
            return found.name

        for n, own in weights.items():
            self.models[n] = joint.built(build, head, built["architectures"][str(n)], own).eval()
            self.models[n].load_state_dict(own)

    def predict(self, given: Mapping[str, Sequence[Any]]) -> Any:
        """Return the class probabilities, (B, K) float32, that the clients' models predict for inputs.

        Args:
            given: ``client``: (B,) client ids, or (1,), one id for all inputs; ``input``: (B, ...) inputs in the form
                of the source.

        A missing value, NaN, is replaced by the value that `ktpfl convert csv` stored for its feature.

        Raises:
            InputError: if a client or a token id does not exist, the numbers of ids and inputs differ, or a value is
                not finite and cannot be replaced.
        """
        clients, inputs = torch.as_tensor(given["client"]), torch.as_tensor(given["input"])
        if unknown := sorted({*clients.tolist()} - {*self.models}):
            raise InputError(f"There is no client {unknown[0]}; there are {', '.join(map(str, self.models))}.")
        if len(clients) not in (1, len(inputs)) or not len(inputs):
            raise InputError(
                f"The request has {plural(len(clients), 'client id')} and {plural(len(inputs), 'input')}: give one id "
                "for each input, or one for all of them."
            )
        if self.vocabulary is not None:
            check_ids(inputs, self.vocabulary.size, "the input")
        inputs = self._finite(inputs) if inputs.is_floating_point() else inputs
        numbers = self.kind.to_float(self.scale(inputs) if self.scale else inputs)
        each = zip(clients.expand(len(inputs)).tolist(), numbers, strict=True)
        with torch.no_grad():
            answers = [self.models[n](number[None]).softmax(dim=1) for n, number in each]
        return torch.cat(answers).numpy()

    def _finite(self, inputs: Tensor) -> Tensor:
        """Return features whose missing values are replaced. Raises InputError if a value is not finite."""
        if self.fill is not None and inputs.shape[1:] == self.fill.shape:
            inputs = inputs.where(~inputs.isnan(), self.fill)
        wrong = ~inputs.isfinite().flatten(1).all(dim=1)
        if wrong.any():
            raise InputError(
                f"Input {int(wrong.nonzero()[0])} (from 0) has a value that is not finite, and no value for missing "
                "ones is known: replace it. Tables that `ktpfl convert csv` converted have such values."
            )
        return inputs


def _load_pyfunc(path: str) -> PersonalModels:
    """Load the models; MLflow calls this function."""
    return PersonalModels(Path(path))
