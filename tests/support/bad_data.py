"""Settings and image files that do not fit together, and the data nodes that read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from project_copy import EXPERIMENT, configuration

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.runs.preparation import prepare

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (400, 28, 28), dtype=np.uint8)
LABELS = np.arange(400) % 10
MINE = {"private": {"source": "npz:mine.npz"}}
Prepare = Callable[[Path], Any]


def data_box(raw: Path, settings: dict[str, Any]) -> FederatedData:
    """Return the result of the data box with the digits of conf/test and these changes."""
    configured = parsing.merged(configuration(), {EXPERIMENT: settings})
    return prepare(parsing.parse(EXPERIMENT, configured[EXPERIMENT]), raw)


def save(**arrays: Any) -> Prepare:
    return lambda raw: np.savez(raw / "mine.npz", **arrays)


def damaged(spoil: Callable[[bytearray], Any]) -> Prepare:
    def prepare(raw: Path) -> None:
        np.savez(raw / "mine.npz", images=IMAGES, labels=LABELS)
        content = bytearray((raw / "mine.npz").read_bytes())
        spoil(content)
        (raw / "mine.npz").write_bytes(content)

    return prepare


def zeros(content: bytearray) -> None:
    content[5000:6000] = bytes(1000)


def half(content: bytearray) -> None:
    del content[len(content) // 2 :]


CASES: dict[str, tuple[Prepare | None, dict[str, Any], list[str]]] = {
    # Settings that do not fit the images.
    "too many clients": (None, {"clients": 2000}, ["1,258 samples are too few for 2,000 clients", "Lower clients"]),
    "two labels, too few clients": (
        None,
        {"clients": 3},
        ["cannot share 10 classes out among 3 clients", "at least 2 classes and 5 clients", "private.classes,"],
    ),
    "too little to train on": (None, {"partition": {"test_share": 0.999}}, ["too few", "Lower clients or test_share"]),
    "nothing open": (None, {"public": {"share": 1e-6}}, ["the public share 1e-06", "nearer to 0.5"]),
    "everything open": (None, {"public": {"share": 0.999999}}, ["the public share 0.999999", "nearer to 0.5"]),
    "public set too small": (
        None,
        {"public": {"batch": 600}},
        ["public.batch is 600 and the public set has 539 samples", "lower public.batch to 539 or less"],
    ),
    "another public set too small": (
        lambda raw: np.savez(raw / "public.npz", images=IMAGES[:20], labels=LABELS[:20]),
        {"public": {"source": "npz:public.npz"}},
        ["public.batch is 60 and the public set has 20 samples", "lower public.batch to 20 or less"],
    ),
    "the same source twice": (
        None,
        {"public": {"source": "digits"}},
        ["the public set shares 1,797 of its 1,797 samples with the private data", "Choose another public.source"],
    ),
    "another file with the same images": (
        lambda raw: [
            np.savez(raw / "mine.npz", images=IMAGES, labels=LABELS),
            np.savez(raw / "public.npz", images=np.concatenate([IMAGES[:9], 255 - IMAGES[:200]]), labels=[0] * 209),
        ],
        {**MINE, "public": {"source": "npz:public.npz"}},
        ["shares 9 of its 209 samples with the private data", "Choose another public.source"],
    ),
    "a class that is not there": (None, {"private": {"classes": [0, 12]}}, ["class 12", "0 to 9"]),
    "a class twice": (None, {"private": {"classes": [3, 3]}}, ["`classes` is [3, 3]", "each class once"]),
    "no class": (None, {"private": {"classes": []}}, ["`classes` is []", "at least one class"]),
    "one class": (
        None,
        {"private": {"classes": [3]}, "partition": {"scheme": "iid"}, "public": {"batch": 10}},
        ["digits", "the same class", "private.classes"],
    ),
    "an argument for a source that takes none": (None, {"private": {"source": "digits:8x8"}}, ["8x8", "leave out"]),
    "a split that EMNIST has not": (None, {"private": {"source": "emnist:leters"}}, ["leters", "emnist:<split>"]),
    "a GPU that is not there": (None, {"compute": {"device": "cuda:99"}}, ["'cuda:99'", "choose auto or cpu"]),
    # The user's own files.
    "no file": (None, MINE, ["there is no file", "mine.npz", "correct the path"]),
    "no path": (None, {"private": {"source": "npz:"}}, ["'npz' needs a path", "npz:yourfile.npz"]),
    "corrupt": (damaged(zeros), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "cut short": (damaged(half), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "empty file": (damaged(bytearray.clear), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "floats": (save(images=IMAGES / 255, labels=LABELS), MINE, ["float64 and must be uint8", "astype('uint8')"]),
    "no labels": (save(images=IMAGES), MINE, ["has no array 'labels', only images", "labels=labels"]),
    "labels that do not match": (save(images=IMAGES, labels=LABELS[:-1]), MINE, ["400 images and 399 labels", "save"]),
    "labels that are no class numbers": (
        save(images=IMAGES, labels=LABELS / 2),
        MINE,
        ["label 0.5 in row 1", "integers"],
    ),
    "negative labels": (save(images=IMAGES, labels=LABELS - 1), MINE, ["label -1 in row 0", "from 0 to 9999"]),
    "features that differ in the ninth digit": (
        save(features=1.7e9 + np.arange(400)[:, None], labels=LABELS),
        MINE,
        ["column 0 (from 0) of the features", "from 1700000000 to 1700000399", "subtract 1700000000"],
    ),
    "pickled objects": (
        save(images=IMAGES, labels=LABELS.astype(object)),
        MINE,
        ["Python objects", "save class numbers", "names of classes"],
    ),
    "channels first": (
        save(images=np.zeros((60, 3, 28, 28), np.uint8), labels=LABELS[:60]),
        MINE,
        ["(60, 3, 28, 28)", "images.transpose(0, 2, 3, 1)"],
    ),
    "too few images": (
        save(images=IMAGES[:30], labels=LABELS[:30]),
        MINE,
        ["public.batch is 60", "lower public.batch"],
    ),
    "no folder": (None, {"private": {"source": "folder:mine"}}, ["there is no folder", "correct the path"]),
    "folder without subfolders": (
        lambda raw: (raw / "mine").mkdir(),
        {"private": {"source": "folder:mine"}},
        ["mine has no subfolders", "a subfolder of its own"],
    ),
    "folder without images": (
        lambda raw: (raw / "mine" / "cats").mkdir(parents=True),
        {"private": {"source": "folder:mine"}},
        ["cats has no images", "add some"],
    ),
    "folder with a text for an image": (
        lambda raw: [(raw / "mine" / "cats").mkdir(parents=True), (raw / "mine" / "cats" / "a.png").write_text("hi")],
        {"private": {"source": "folder:mine"}},
        ["a.png cannot be read", "replace or remove it"],
    ),
}
"""Cases by description: the function that makes files in data/01_raw, changed settings, and words of the message."""
