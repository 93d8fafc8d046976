"""Names of classes, from each source to the data that runs see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.federated import FederatedData, PublicSet
from ktpfl_pipeline.data.partition import ClientIndices
from ktpfl_pipeline.data.sources import load

FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)


def pictures(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(root / name / "0.png")


def test_a_folders_classes_are_its_subfolders(tmp_path: Path) -> None:
    pictures(tmp_path / "mine", "dog", "cat")
    samples = load("folder:mine", tmp_path)
    assert samples.class_names == ("cat", "dog")
    assert samples.labels.tolist() == [0, 1]


def test_clients_that_lack_a_class_have_the_number_of_its_name(tmp_path: Path) -> None:
    pictures(tmp_path / "mine" / "a", "benign", "malignant", "normal")
    pictures(tmp_path / "mine" / "b", "benign", "normal")
    samples: Any = load("clients:mine", tmp_path)
    assert samples.class_names == ("benign", "malignant", "normal")
    assert samples.labels[samples.owners == 1].tolist() == [0, 2]


def test_labels_in_text_are_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", features=FEATURES, labels=np.array(["sick", "well", "sick", "ill"]))
    samples = load("npz:mine.npz", tmp_path)
    assert samples.class_names == ("ill", "sick", "well")
    assert samples.labels.tolist() == [1, 2, 1, 0]


NUMBERS = ("2", "9", "10")


@pytest.mark.parametrize("source", ["folder:mine", "clients:users", "clients:files", "npz:a.npz", "table:mine.csv"])
def test_names_that_are_numbers_have_their_order(source: str, tmp_path: Path) -> None:
    """So that `private.classes` keeps the same classes of every source."""
    pictures(tmp_path / "mine", *NUMBERS)
    for user, own in {"a": ("2", "10"), "b": ("10", "9")}.items():
        pictures(tmp_path / "users" / user, *own)
        (tmp_path / "files" / user).mkdir(parents=True)
        np.savez(tmp_path / "files" / user / "data.npz", features=FEATURES[:2], labels=np.array(own))
    np.savez(tmp_path / "a.npz", features=FEATURES[:3], labels=np.array(["10", "9", "2"]))
    (tmp_path / "mine.csv").write_text("path,label\n" + "".join(f"mine/{each}/0.png,{each}\n" for each in NUMBERS))
    assert load(source, tmp_path).class_names == NUMBERS
    assert load(source, tmp_path, classes=[2]).class_names == ("10",)


def test_names_are_sorted_as_text_where_one_is_no_number(tmp_path: Path) -> None:
    pictures(tmp_path / "mine", "2", "10", "none")
    assert load("folder:mine", tmp_path).class_names == ("10", "2", "none")


def test_an_array_may_name_classes_and_classes_without_samples(tmp_path: Path) -> None:
    names = np.array(["ill", "sick", "well"])
    np.savez(tmp_path / "mine.npz", features=FEATURES, labels=[0.0, 1.0, 0.0, 1.0], classes=names)
    samples = load("npz:mine.npz", tmp_path)
    assert samples.class_names == ("ill", "sick", "well")
    assert samples.classes == 3
    assert samples.labels.dtype == torch.int64


def test_files_of_clients_agree_on_classes_by_their_names(tmp_path: Path) -> None:
    for client, labels in {"a": ["x", "y", "z", "x"], "b": ["x", "z", "z", "x"]}.items():
        (tmp_path / "mine" / client).mkdir(parents=True)
        np.savez(tmp_path / "mine" / client / "data.npz", features=FEATURES, labels=np.array(labels))
    samples: Any = load("clients:mine", tmp_path)
    assert samples.class_names == ("x", "y", "z")
    assert samples.labels.tolist() == [0, 1, 2, 0, 0, 2, 2, 0]


NFC, NFD = "größe", "gro\u0308ße"


def test_both_forms_of_a_letter_are_one_class_in_folders(tmp_path: Path) -> None:
    pictures(tmp_path / "mine" / "a", NFC, "klein")
    pictures(tmp_path / "mine" / "b", NFD, "klein")
    samples: Any = load("clients:mine", tmp_path)
    assert samples.class_names == (NFC, "klein")
    assert samples.labels.tolist() == [0, 1, 0, 1]
    pictures(tmp_path / "mine" / "a", NFD)
    assert load("folder:mine/a", tmp_path).labels.tolist() == [0, 0, 1]


def test_both_forms_of_a_letter_are_one_class_and_one_client_in_files(tmp_path: Path) -> None:
    names = np.array([NFC, NFD, "a", NFC])
    np.savez(tmp_path / "mine.npz", features=FEATURES, labels=names, clients=names)
    (tmp_path / "mine.csv").write_text("text,label,client\n" + "".join(f"x,{name},{name}\n" for name in names))
    for source in ("npz:mine.npz", "text:mine.csv"):
        samples: Any = load(source, tmp_path)
        assert samples.class_names == samples.names == ("a", NFC)
        assert samples.labels.tolist() == samples.owners.tolist() == [1, 1, 0, 1]


def test_chosen_classes_keep_their_names(tmp_path: Path) -> None:
    assert load("digits", tmp_path, classes=[7, 3]).class_names == ("7", "3")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": [0, 1, 2, 3], "classes": np.array(["a", "b", "c"])}, "3 class names and labels up to 3"),
        ({"labels": [0, 1, 1, 0], "classes": np.array(["a", "a"])}, "two classes named 'a'"),
        ({"labels": [0, 1, 1, 0], "classes": np.array([1, 2])}, "must be text of shape"),
        ({"labels": np.array(list("abab")), "classes": np.array(["a", "b"])}, "which are names already"),
        ({"labels": np.array(list("abab"), dtype=object)}, r"names of classes, with \.astype\(str\)"),
        ({"labels": [0, 1, 1, 0], "clients": np.array(list("nsns"), dtype=object)}, r"save text, with \.astype\(str\)"),
        ({"labels": [0, 1, 3.5, 0]}, r"the label 3\.5 in row 2"),
        ({"labels": [0, float("nan"), 1, 0]}, "the label nan in row 1"),
    ],
)
def test_what_does_not_fit_is_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", features=FEATURES, **arrays)
    with pytest.raises(InputError, match=words):
        load("npz:mine.npz", tmp_path)


def test_names_reach_what_runs_see_through_a_file(tmp_path: Path) -> None:
    private = LabeledDataset(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]), class_names=("a", "b", "c"))
    own = {0: ClientIndices(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))}
    data = FederatedData(private, PublicSet(torch.ones(1, 2), {0: torch.tensor([0])}), {0: own})
    torch.save(data.plain(), tmp_path / "data.pt")
    facts = FederatedData.from_plain(torch.load(tmp_path / "data.pt", weights_only=True)).seeds[0].facts([0])
    assert facts.class_names == ("a", "b", "c")
    assert facts.profile["classes"] == facts.label_counts.shape[1] == 3
