"""Federations with given owners, from conf/ and a file to the report: series, images, and tables of texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from project_copy import Project

from ktpfl_pipeline.analysis.kept import load
from ktpfl_pipeline.export import exported

METHODS = {"kt_pfl", "local"}
CLASSES = 3


def write(file: Path, kind: str, inputs: Any, owners: list[str]) -> None:
    """Write samples whose values tell their class, 24 of each owner, and 30 public ones."""
    labels = np.arange(24 * len(owners)) % CLASSES
    private = inputs(len(labels), labels)
    public = inputs(30, np.zeros(30))
    if kind == "text":
        rows = [
            f'"{text}",{label},{owner},false'
            for text, label, owner in zip(private, labels, np.repeat(owners, 24), strict=True)
        ]
        rows += [f'"{text}",,,true' for text in public]
        file.with_suffix(".csv").write_text("\n".join(["text,label,client,public", *rows]))
        return
    np.savez(file, **{kind: private}, labels=labels, clients=np.repeat(owners, 24), public=public)


def series(number: int, labels: Any) -> Any:
    noise = np.random.default_rng(number).normal(size=(number, 9, 32))
    return (50.0 + 10.0 * noise + 20.0 * labels[:, None, None]).astype("float16")


def images(number: int, labels: Any) -> Any:
    noise = np.random.default_rng(number).integers(0, 90, (number, 16, 16, 3))
    return (noise + 60 * labels[:, None, None, None]).astype("uint8")


def tickets(number: int, labels: Any) -> Any:
    words = [["screen, ", "mouse, "], ["mail, ", "login, "], ["leave, ", "salary, "]]
    drawn = np.random.default_rng(number).integers(0, 2, (number, 3))
    texts = ["".join(words[int(label)][n] for n in row) for row, label in zip(drawn, labels, strict=True)]
    return [f"ticket {number} {n}: {text}" for n, text in enumerate(texts)]


# kind, inputs, owners, the section's name and what it says, the report's folder
FEDERATIONS: dict[str, tuple[str, Any, list[str], dict[str, Any], str]] = {
    "har": (
        *("features", series, ["ann", "bo", "cy"]),
        {"architectures": ["cnn1d", "gru", "mlp"]},
        "har.npz-natural",
    ),
    "tickets": (
        *("text", tickets, ["north", "river"]),
        {"like": "har", "private": {"source": "text:tickets.csv"}, "architectures": ["fasttext", "text_lstm"]},
        "tickets.csv-natural",
    ),
    "cameras": (
        *("images", images, ["north", "river"]),
        {"like": "har", "private": {"source": "npz:cameras.npz"}, "architectures": ["lenet", "cnn_bn"]}
        | {"training": {"optimizer": "sgd", "learning_rate": 0.05, "augmentation": ["flip"]}},
        "cameras.npz-natural",
    ),
}


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    return ("har",)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_from_a_file_to_a_report_and_the_clients_models(
    name: str, tracked: Callable[[], Project], tmp_path: Path
) -> None:
    kind, inputs, owners, section, folder = FEDERATIONS[name]
    project = tracked()
    write(project.folder / "data" / "01_raw" / f"{name}.npz", kind, inputs, owners)
    common = {"rounds": 1, "seeds": [0], "compare": "local", "theorem_samples": 6}
    common["compute"] = {"executor": "serial", "memory_format": "channels_last"}  # the latter as in conf/quick
    common["public"] = {"batch": 12}
    project.configure("parameters_federations", **{name: {**section, **common}})
    project.run(f"compare_{name}", experiment=name, drawn=True)

    place = project.folder / "data" / "08_reporting" / f"compare_{name}"
    (report,) = place.iterdir()
    assert report.name.rpartition("-")[0] == folder
    table = pd.read_csv(report / "clients.csv")
    assert set(table["owner"]) == set(owners)
    assert set(table["method"]) == METHODS

    runs = {run.data.tags["method"]: run for run in project.tracked(name)}
    assert set(runs) == METHODS
    for run in runs.values():
        assert run.data.tags["partition"] == "natural"

    rows = exported(name, None, (), tmp_path / "models", project.folder / "data")
    assert {row[0] for row in rows} == set(owners) and {row[1] for row in rows} <= METHODS
    model = load(rows[0].folder)
    (file,) = (project.folder / "data" / "01_raw").glob(f"{name}.*")
    assert model.predict(model.inputs.of_file(file)).shape[1] == CLASSES
