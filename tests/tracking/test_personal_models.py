"""A run's personal models as MLflow reads them."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiment import EXPERIMENT
from full_disk import full_disk

from ktpfl_pipeline import models
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import params_of
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.run import kept_models
from ktpfl_pipeline.tracking import personal_models

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow
ARCHITECTURES = {0: "mlp", 3: "cnn_bn"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bundle") / personal_models.NAME
    weights = {n: params_of(models.build(name, (1, 28, 28), 4)) for n, name in ARCHITECTURES.items()}
    example = torch.arange(2 * 28 * 28).remainder(256).to(torch.uint8).view(2, 1, 28, 28)
    personal_models.save(made, weights, ARCHITECTURES, LabeledDataset(example, torch.arange(2)), 4)
    return made


def test_a_full_disk_is_told_of_in_a_sentence(tmp_path: Path) -> None:
    weights = {0: params_of(models.build("mlp", (1, 28, 28), 4))}
    examples = LabeledDataset(torch.zeros(1, 1, 28, 28), torch.zeros(1, dtype=torch.int64))
    with full_disk(1000), pytest.raises(InputError, match=r"models, .* could not be written"):
        personal_models.save(tmp_path / "bundle", weights, {0: "mlp"}, examples, 4)


def test_mlflow_serves_each_client_its_own_model(folder: Path) -> None:
    import mlflow.pyfunc

    given = json.loads((folder / "input.json").read_text())["inputs"]
    served = mlflow.pyfunc.load_model(str(folder)).predict(
        {"client": np.array(given["client"]), "input": np.array(given["input"], dtype=np.uint8)}
    )
    assert given["client"] == [0, 3]
    np.testing.assert_allclose(served.sum(axis=1), 1.0, rtol=1e-6)
    weights = torch.load(folder / personal_models.WEIGHTS, weights_only=True)
    for place, (n, name) in enumerate(ARCHITECTURES.items()):
        model = models.build(name, (1, 28, 28), 4).eval()
        model.load_state_dict(weights[n])
        pixels = torch.tensor(given["input"][place]).float() / 127.5 - 1  # as in training
        np.testing.assert_allclose(served[place], model(pixels[None]).softmax(1).detach().numpy()[0], rtol=1e-5)


def test_a_client_that_there_is_not(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no client 1; there are 0, 3\."):
        personal_models.PersonalModels(folder).predict({"client": [1], "input": torch.zeros(1, 1, 28, 28)})


def test_one_client_answers_for_all_inputs(folder: Path) -> None:
    personal, inputs = personal_models.PersonalModels(folder), torch.arange(3 * 784).remainder(256).view(3, 1, 28, 28)
    alone = personal.predict({"client": [3], "input": inputs})
    np.testing.assert_array_equal(alone, personal.predict({"client": [3] * 3, "input": inputs}))
    for clients, taken, words in (([0, 3], 3, "2 client ids and 3 inputs: give one id"), ([0], 0, "1 .* and 0 inputs")):
        with pytest.raises(InputError, match=words):
            personal.predict({"client": clients, "input": inputs[:taken]})


IMAGES = np.random.default_rng(0).integers(0, 256, (60, 6, 5)).astype("uint8")
TOKENS = np.random.default_rng(0).integers(0, 6, (60, 5)) + 7 * (np.arange(60) % 3)[:, None]
SERIES = np.random.default_rng(0).normal([[[900.0], [0.001]]], [[[40.0], [0.0002]]], (60, 2, 16)).astype("float32")


@pytest.mark.parametrize(
    ("name", "arrays", "image", "kind"),
    [
        ("local", {"images": IMAGES}, {"channels": 3, "size": 8}, "uint8"),
        ("local", {"features": SERIES}, None, "float32"),
        ("fedmrl", {"features": SERIES}, None, "float32"),
        ("local", {"tokens": TOKENS, "padding": 0}, None, "int64"),
    ],
    ids=["images", "features", "two models as one", "tokens"],
)
def test_predictions_are_those_of_the_engine(
    tmp_path: Path, name: str, arrays: dict[str, Any], image: dict[str, int] | None, kind: str
) -> None:
    """From what the source has: images, features far from mean 0 and deviation 1, or ids of tokens."""
    np.savez(tmp_path / "mine.npz", labels=np.arange(60) % 3, **arrays)
    own = {"private": {"source": "npz:mine.npz"}, "image": image, "public": {"source": "open_part", "batch": 5}}
    architecture = "text_cnn" if "tokens" in arrays else "mlp"
    settings = {"clients": 3, "architectures": [architecture], "partition": {"scheme": "dirichlet", "alpha": 5.0}}
    experiment = parsing.parse("mine", {**EXPERIMENT, **own, **settings, "training": {"epochs": 2}})
    data = prepare(experiment, tmp_path)
    fed, method = assemble(experiment, data, 0), create(name)
    with closing(fed.executor):
        result = engine.run(method, fed, engine.Schedule(1))
        theirs = fed.cross_logits(method.personal(result.state, fed.by_id, fed), "test")
        with kept_models(method, result, fed, data.seeds[0]) as folder:
            served = personal_models.PersonalModels(folder)
            example = json.loads((folder / "input.json").read_text())["inputs"]
            takes = json.loads((folder / "MLmodel").read_text().split("inputs: '")[1].split("'\n")[0])
    assert [given["tensor-spec"]["dtype"] for given in takes] == ["int64", kind]
    for n, parts in data.partitions[0].items():
        inputs = data.private.inputs[parts.test]
        np.testing.assert_array_equal(example["input"][n], inputs[0])
        answers = served.predict({"client": [n] * len(inputs), "input": inputs})
        np.testing.assert_allclose(answers, theirs[n][:, n].softmax(dim=1), rtol=1e-5)
    assert np.ptp(answers[:, 0]) > 0.01, "the inputs tell"
    if "tokens" in arrays:
        with pytest.raises(InputError, match="the input has the id 99 in row 0, place 4"):
            served.predict({"client": [0], "input": [[1, 2, 3, 4, 99]]})


@pytest.mark.parametrize("fill", [None, torch.tensor([1.5, 20.0])])
def test_a_missing_value_is_replaced_or_refused_and_never_answered_with_nan(
    tmp_path: Path, fill: torch.Tensor | None
) -> None:
    weights = {0: params_of(models.build("mlp", (2,), 3))}
    examples = LabeledDataset(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64), fill=fill, columns=("age", "bmi"))
    personal_models.save(tmp_path / "bundle", weights, {0: "mlp"}, examples, 3)
    served = personal_models.PersonalModels(tmp_path / "bundle")
    assert json.loads((tmp_path / "bundle" / personal_models.CLIENTS).read_text())["columns"] == ["age", "bmi"]
    given = {"client": [0], "input": torch.tensor([[1.0, 2.0], [torch.nan, 2.0]])}
    if fill is None:
        with pytest.raises(InputError, match=r"Input 1 \(from 0\) has a value that is not finite"):
            served.predict(given)
    else:
        whole = served.predict({"client": [0], "input": torch.tensor([[1.0, 2.0], [1.5, 2.0]])})
        np.testing.assert_array_equal(served.predict(given), whole)
        with pytest.raises(InputError, match="not finite"):
            served.predict({"client": [0], "input": torch.tensor([[torch.inf, 2.0]])})


def test_the_folder_says_what_classes_sites_and_features_are_called(tmp_path: Path) -> None:
    names, columns = {0: "anna", 3: "bert"}, ("age", "hba1c")
    samples = LabeledDataset(torch.zeros(2, 2), torch.arange(2), class_names=("well", "ill"), columns=columns)
    weights = {n: params_of(models.build("mlp", (2,), 2)) for n in names}
    personal_models.save(tmp_path / "bundle", weights, dict.fromkeys(names, "mlp"), samples, 2, None, names)
    known = json.loads((tmp_path / "bundle" / personal_models.CLIENTS).read_text())
    assert known["names"] == {"0": "anna", "3": "bert"}
    assert (known["class_names"], known["columns"]) == (["well", "ill"], ["age", "hba1c"])
    served = personal_models.PersonalModels(tmp_path / "bundle")
    assert (served.served.class_names, served.served.columns) == (["well", "ill"], ["age", "hba1c"])
    with pytest.raises(InputError, match=r"The inputs have the shape \(3,\), but the model takes features of shape"):
        served.predict({"client": [0], "input": torch.zeros(1, 3)})
