"""UCI HAR's layout, made up: four people, two in each part, with windows of eight steps."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from input_errors import input_error

from ktpfl_pipeline.convert import convert
from ktpfl_pipeline.data.converters import uci_har
from ktpfl_pipeline.data.sources import load, load_public


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "UCI HAR Dataset"
    for part, people in (("train", [1, 3, 3]), ("test", [2, 4])):
        signals = place / part / "Inertial Signals"
        signals.mkdir(parents=True)
        for number, name in enumerate(uci_har.SIGNALS):
            np.savetxt(signals / f"{name}_{part}.txt", [[100 * person + number] * 8 for person in people], fmt="%15.7e")
        np.savetxt(place / part / f"y_{part}.txt", [1, 6, 2][: len(people)], fmt="%d")
        np.savetxt(place / part / f"subject_{part}.txt", people, fmt="%d")
    return place


def test_people_are_clients_and_the_last_ones_windows_public(folder: Path) -> None:
    done = CliRunner().invoke(convert, ["uci_har", str(folder), str(folder.parent / "har.npz"), "--public", "1"])
    assert done.exit_code == 0, done.output
    samples = load("npz:har.npz", folder.parent)
    assert samples.inputs.shape == (4, 9, 8)
    assert samples.names == ("1", "2", "3")
    assert samples.inputs[:, :, 0].tolist() == [[100 * n + signal for signal in range(9)] for n in (1, 3, 3, 2)]
    assert samples.labels.tolist() == [0, 5, 1, 0]
    assert load_public("included", "npz:har.npz", folder.parent)[:, 0, 0].tolist() == [400]


def test_without_public_people_all_are_clients(folder: Path) -> None:
    arrays = uci_har.convert(folder)
    assert "public" not in arrays
    assert sorted(set(arrays["clients"].tolist())) == [1, 2, 3, 4]


def test_all_people_cannot_be_public(folder: Path) -> None:
    for number in (3, -1):
        with input_error(f"{number} of 4 people cannot be public", "two or more"):
            uci_har.convert(folder, number)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("train/y_train.txt", None, ("there is no file", "'UCI HAR Dataset'")),
        ("train/y_train.txt", "1\n2\n", ("y_train.txt must have 3 whole numbers from 1",)),
        ("train/y_train.txt", "1\n2.5\n3\n", ("must have 3 whole numbers",)),
        ("train/subject_train.txt", "0\n1\n1\n", ("subject_train.txt must have 3 whole numbers from 1",)),
        ("test/Inertial Signals/body_gyro_y_test.txt", "1 2\n3 4\n", ("body_gyro_y_test.txt has (2, 2) values",)),
        ("test/Inertial Signals/body_gyro_y_test.txt", "one two", ("cannot be read", "replace or remove it")),
        ("test/Inertial Signals/body_gyro_y_test.txt", "1 2\n3\n", ("cannot be read", "columns changed")),
    ],
)
def test_files_that_do_not_go_together(folder: Path, file: str, text: str | None, words: tuple[str, ...]) -> None:
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    with input_error(*words):
        uci_har.convert(folder)


@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_part_whose_files_are_all_empty(folder: Path) -> None:
    """As a full disk leaves them."""
    for file in (folder / "test").rglob("*.txt"):
        file.write_text("")
    with input_error("y_test.txt must have 0 whole numbers from 1: fetch it anew"):
        uci_har.convert(folder)
