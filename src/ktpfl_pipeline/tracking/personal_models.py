"""The personal models of a run as one MLflow model, which maps client ids and inputs to probabilities.

`mlflow models predict` and `mlflow models serve` load it, with ``--env-manager=local`` if this package is installed.
No code in the folder is run; see `analysis.serving`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.analysis.serving import Served, facts
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.data.standardization import Fitted

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
    names: Mapping[int, str] | None = None,
) -> None:
    """Write the models of a federation's clients to a new folder, as one MLflow model.

    Args:
        folder: the folder, which is created.
        weights: the complete model of each client by id, as in `state_dict`.
        architectures: the architecture of each client by id.
        examples: one sample of each of the first B clients, in the form of the source, as an example input.
        classes: K, the number of classes.
        scale: the quantities fitted to the training samples; None if there are none.
        names: the names of the clients in the source by id; None if it has no names.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # mlflow reads the variable on import
    import mlflow.pyfunc
    import numpy as np
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    example, called = examples.inputs, examples.class_names
    given = TensorSpec(example.numpy().dtype, (-1, *example.shape[1:]), "input")
    takes = Schema([TensorSpec(np.dtype("int64"), (-1,), "client"), given])
    gives = Schema([TensorSpec(np.dtype("float32"), (-1, classes))])
    folder.mkdir(parents=True)
    plain = {n: {name: each.cpu() for name, each in own.items()} for n, own in weights.items()}
    with replacing(folder / WEIGHTS, f"The clients' models, {folder / WEIGHTS},") as place, place.open("wb") as file:
        torch.save(plain, file)  # with a path, torch would hide the system's error message
    built = {"architectures": dict(architectures), "names": dict(names or {}), **facts(examples, classes, scale)}
    (folder / CLIENTS).write_text(json.dumps(built), encoding="utf-8")
    metadata = None if called is None else {"class_names": list(called)}
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
        self.served = Served(built)
        self.models = {n: self.served.model(built["architectures"][str(n)], own) for n, own in weights.items()}

    def predict(self, given: Mapping[str, Sequence[Any]]) -> Any:
        """Return the class probabilities, (B, K) float32, that the clients' models predict for inputs.

        Args:
            given: ``client``: (B,) client ids, or (1,), one id for all inputs; ``input``: (B, ...) inputs in the form
                of the source.

        A missing value, NaN, is replaced by the value that `ktpfl convert csv` stored for its feature.

        Raises:
            InputError: if a client does not exist, the numbers of ids and inputs differ, or the inputs cannot be used.
        """
        clients, inputs = torch.as_tensor(given["client"]), torch.as_tensor(given["input"])
        if unknown := sorted({*clients.tolist()} - {*self.models}):
            raise InputError(f"There is no client {unknown[0]}; there are {', '.join(map(str, self.models))}.")
        if len(clients) not in (1, len(inputs)) or not len(inputs):
            raise InputError(
                f"The request has {plural(len(clients), 'client id')} and {plural(len(inputs), 'input')}: give one id "
                "for each input, or one for all of them."
            )
        each = zip(clients.expand(len(inputs)).tolist(), self.served.numbers(inputs), strict=True)
        answers = [self.served.predict(self.models[n], number[None]) for n, number in each]
        return torch.cat(answers).numpy()


def _load_pyfunc(path: str) -> PersonalModels:
    """Load the models; MLflow calls this function."""
    return PersonalModels(Path(path))
