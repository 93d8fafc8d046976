"""Real images: the four files are read whole, and each pipeline runs on a little of them, one with the paper's models.

The folder in KTPFL_REAL_DATA holds cifar10.npz, cifar100.npz, fashion_mnist.npz and mnist.npz; without it these tests
are skipped.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from project_copy import ROOT, Project

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.data.public import without_overlap
from ktpfl_pipeline.data.sources import load

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(
        not os.environ.get("KTPFL_REAL_DATA"), reason="KTPFL_REAL_DATA does not say where the images are"
    ),
]
PAPER = ["lenet", "alexnet", "resnet18", "shufflenet_v2"]
CLIENTS = 5  # of two labels each: all ten are somebody's
FILES = {  # images, classes, channels, size
    "fashion_mnist": (20_000, 10, 1, 28),
    "mnist": (12_000, 10, 1, 28),
    "cifar10": (10_000, 10, 3, 32),
    "cifar100": (4_000, 100, 3, 32),
}
PAIRS = {"hetero_fashion_mnist": ("fashion_mnist", "mnist"), "hetero_cifar": ("cifar10", "cifar100")}


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(os.environ["KTPFL_REAL_DATA"]).expanduser().resolve()


def read(folder: Path, name: str) -> LabeledDataset:
    return load(f"npz:{folder / name}.npz", folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_whole(folder: Path, name: str) -> None:
    number, classes, channels, size = FILES[name]
    samples = read(folder, name)
    assert samples.inputs.shape == (number, channels, size, size)
    assert samples.inputs.dtype == torch.uint8
    assert torch.bincount(samples.labels).tolist() == [number // classes] * classes  # class-balanced
    assert (samples.inputs.amin(), samples.inputs.amax()) == (0, 255)


@pytest.mark.parametrize("experiment", PAIRS)
def test_nothing_private_is_public(folder: Path, experiment: str) -> None:
    private, public = (read(folder, name).inputs for name in PAIRS[experiment])
    assert without_overlap(public, private) is public


def write_some(folder: Path, name: str, number: int, target: Path) -> None:
    """Write `number` images of a file, as many of each class, in the order of the file."""
    with np.load(folder / f"{name}.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    each = number // FILES[name][1]
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))
    assert len(chosen) == number
    np.savez(target, images=images[chosen], labels=labels[chosen])


@pytest.mark.parametrize(
    ("experiment", "architectures"), [("hetero_cifar", PAPER), ("hetero_fashion_mnist", ["lenet", "cnn_bn"])]
)
def test_a_run(folder: Path, untracked: Project, experiment: str, architectures: list[str]) -> None:
    for environment in ("base", "test"):  # the copy has no experiment on such images
        sections = yaml.safe_load((ROOT / "conf" / environment / "parameters_hetero.yml").read_text())
        untracked.configure("parameters_real", environment, **{experiment: sections.get(experiment, {})})
    raw = untracked.folder / "data" / "01_raw"
    private, public = PAIRS[experiment]
    write_some(folder, private, 60, raw / "private.npz")
    write_some(folder, public, 100, raw / "public.npz")
    settings: dict[str, Any] = {
        "private": {"source": "npz:private.npz"},
        "public": {"source": "npz:public.npz", "batch": 16},
        "architectures": architectures,
        "clients": CLIENTS,
        "rounds": 1,
        "training": {"epochs": 1},
        "theorem_samples": 0,
    }
    untracked.run(experiment, experiment=experiment, **settings)

    outputs = untracked.folder / "data"
    (run,) = json.loads((outputs / "07_model_output" / experiment / "kt_pfl" / "result.json").read_text())["runs"]
    assert run["architectures"] == [architectures[n % len(architectures)] for n in range(CLIENTS)]
    (record,) = run["history"]
    assert record["cohort"] == list(range(CLIENTS))
    assert set(record["loss"]) == {"train", "distill", "test"}
    assert all(np.isfinite(values).all() and min(values) > 0 for values in record["loss"].values())
    assert all(0 <= value <= 1 for values in record["accuracy"].values() for value in values)
    assert np.sum(run["label_counts"]) == 60
    assert [sum(count > 0 for count in row) for row in run["label_counts"]] == [2] * CLIENTS
    assert np.sum(run["coefficients"], axis=1) == pytest.approx(np.ones(CLIENTS))
    assert not np.allclose(run["coefficients"], 1 / CLIENTS, atol=1e-6)
    assert list((outputs / "08_reporting" / experiment).glob("*/report.html"))
