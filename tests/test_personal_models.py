"""A run's personal models as MLflow reads them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import params_of
from ktpfl_pipeline.tracking import personal_models

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow
ARCHITECTURES = {0: "mlp", 3: "cnn_bn"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bundle") / personal_models.NAME
    weights = {n: params_of(models.build(name, (1, 28, 28), 4)) for n, name in ARCHITECTURES.items()}
    example = torch.arange(2 * 28 * 28).remainder(256).to(torch.uint8).view(2, 1, 28, 28)
    personal_models.save(made, weights, ARCHITECTURES, example, 4)
    return made


def test_mlflow_serves_each_client_its_own_model(folder: Path) -> None:
    import mlflow.pyfunc

    given = json.loads((folder / "input.json").read_text())["inputs"]
    served = mlflow.pyfunc.load_model(str(folder)).predict(
        {"client": np.array(given["client"]), "image": np.array(given["image"], dtype=np.uint8)}
    )
    assert given["client"] == [0, 3]
    np.testing.assert_allclose(served.sum(axis=1), 1.0, rtol=1e-6)
    weights = torch.load(folder / personal_models.WEIGHTS, weights_only=True)
    for place, (n, name) in enumerate(ARCHITECTURES.items()):
        model = models.build(name, (1, 28, 28), 4).eval()
        model.load_state_dict(weights[n])
        pixels = torch.tensor(given["image"][place]).float() / 127.5 - 1  # as in training
        np.testing.assert_allclose(served[place], model(pixels[None]).softmax(1).detach().numpy()[0], rtol=1e-5)


def test_a_client_that_there_is_not(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no client 1; there are 0, 3\."):
        personal_models.PersonalModels(folder).predict({"client": [1], "image": torch.zeros(1, 1, 28, 28)})
