"""PFLlib's shards, as numpy writes them for PFLlib, and such as are made to run code."""

import io
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import case
from click.testing import CliRunner
from hostile_files import TRACE
from hostile_pickles import HEADER, PICKLES, shards
from input_errors import input_error

from ktpfl_pipeline.__main__ import main
from ktpfl_pipeline.convert import convert
from ktpfl_pipeline.data.converters import pfllib, pickles
from ktpfl_pipeline.data.sources import load

NUMBERS = np.random.default_rng(0)


def shard(path: Path, x: Any, y: Any) -> None:
    """Write a file as PFLlib's `utils.dataset_utils.save_file` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, data={"x": x, "y": y})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three clients with two samples to train on and one to test on; client 10 comes after 9."""
    for n in (9, 10, 2):
        shard(tmp_path / f"MNIST/train/{n}.npz", NUMBERS.random((2, 1, 4, 4)).astype("f4") + n, np.array([n % 3, 1]))
        shard(tmp_path / f"MNIST/test/{n}.npz", NUMBERS.random((1, 1, 4, 4)).astype("f4") + n, np.array([0]))
    (tmp_path / "MNIST/config.json").write_text("{}")
    return tmp_path / "MNIST"


def test_the_command_writes_what_a_source_reads(folder: Path) -> None:
    out = folder.parent / "mine.npz"
    done = CliRunner().invoke(convert, ["pfllib", str(folder), str(out)])
    assert done.exit_code == 0, done.output
    assert "9 samples of shape (1, 4, 4), 3 clients" in done.output
    samples: Any = load("npz:mine.npz", folder.parent)
    assert samples.names == ("2", "9", "10")
    assert samples.inputs[:, 0, 0, 0].int().tolist() == [2, 2, 2, 9, 9, 9, 10, 10, 10]
    assert samples.labels.tolist() == [2, 1, 0, 0, 1, 0, 1, 1, 0]
    assert samples.test.tolist() == [False, False, True] * 3


def test_a_value_that_cannot_be_used_is_said_of_the_file_that_was_asked_for(folder: Path) -> None:
    shard(folder / "train/2.npz", np.full((2, 1, 4, 4), np.nan, "f4"), np.array([0, 1]))
    done = CliRunner().invoke(convert, ["pfllib", str(folder), str(folder.parent / "mine.npz")])
    assert done.exit_code == 1
    assert f"'features' in {folder.parent / 'mine.npz'} has nan in row 0" in done.output


def test_ktpfl_has_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--help"])
    assert ended.value.code == 0
    assert {"pfllib"} <= set(capsys.readouterr().out.split())


def test_a_refusal_is_one_line_and_leaves_no_file(folder: Path) -> None:
    shard(folder / "test/2.npz", np.full((1, 1, 4, 4), np.nan, "f4"), np.array([0]))
    done = CliRunner().invoke(convert, ["pfllib", str(folder), str(folder.parent / "mine.npz")])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert "has nan in row 2" in done.output
    assert done.output.count("\n") == 1
    assert [path.name for path in folder.parent.iterdir()] == ["MNIST"]
    (folder.parent / "mine.npz").write_text("mine")
    done = CliRunner().invoke(convert, ["pfllib", str(folder), str(folder.parent / "mine.npz")])
    assert "is there already" in done.output
    assert (folder.parent / "mine.npz").read_text() == "mine"


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_are_those_that_were_pickled(protocol: int) -> None:
    for dtype in ("f4", ">f8", "i8", "u1", "?", "f2"):
        array = np.asfortranarray(NUMBERS.integers(0, 2, (2, 3, 4)).astype(dtype))
        for given in (array, np.ascontiguousarray(array), array[:1]):
            with case(dtype, given.shape, given.flags.f_contiguous):
                found = pickles.read(pickle.dumps({"x": given, "n": [1, "two", 3.5, None, (True,)]}, protocol))
                assert np.array_equal(found["x"], given)
                assert found["x"].dtype == given.dtype
                assert found["n"] == [1, "two", 3.5, None, (True,)]


def test_uint8_inputs_are_images(tmp_path: Path) -> None:
    for part in ("train", "test"):
        shard(tmp_path / f"{part}/0.npz", np.zeros((2, 3, 4, 5), np.uint8), np.array([0, 1]))
    assert pfllib.convert(tmp_path)["images"].shape == (4, 4, 5, 3)


def test_series_lose_the_axis_that_pfllib_gives_them(tmp_path: Path) -> None:
    for part in ("train", "test"):
        shard(tmp_path / f"{part}/0.npz", np.zeros((2, 9, 1, 128), "f4"), np.array([0, 1]))
    assert pfllib.convert(tmp_path)["features"].shape == (4, 9, 128)


def test_nothing_that_a_pickle_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was given to numpy"))
    for number, (what, (content, words)) in enumerate(PICKLES.items()):
        with case(what):
            before = set(sys.modules)
            shards(tmp_path / str(number), content)
            with input_error("train/0.npz", words):
                pfllib.convert(tmp_path / str(number))
            assert not list(tmp_path.rglob(TRACE))
            assert not {name for name in set(sys.modules) - before if name.startswith(("numpy.f2py", "subprocess"))}


def no_folder(place: Path) -> None:
    pass


def empty_folder(place: Path) -> None:
    place.mkdir()


def no_test(place: Path) -> None:
    shard(place / "train/0.npz", np.zeros((1, 2)), np.zeros(1, int))


def other_clients(place: Path) -> None:
    no_test(place)
    shard(place / "test/1.npz", np.zeros((1, 2)), np.zeros(1, int))


def other_shape(place: Path) -> None:
    no_test(place)
    shard(place / "test/0.npz", np.zeros((1, 3)), np.zeros(1, int))


def no_data(place: Path) -> None:
    no_test(place)
    (place / "test").mkdir()
    np.savez(place / "test/0.npz", x=np.zeros(3))


def plain_array(place: Path) -> None:
    no_test(place)
    (place / "test").mkdir()
    np.savez(place / "test/0.npz", data=np.zeros(3))


def link(place: Path) -> None:
    no_test(place)
    (place / "test").mkdir()
    (place / "test/0.npz").symlink_to("/dev/zero")


def exabyte(place: Path) -> None:
    no_test(place)
    (place / "test").mkdir()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.npy", HEADER)
        archive.getinfo("data.npy").file_size = 2**31
    (place / "test/0.npz").write_bytes(buffer.getvalue())


def test_files_not_written_by_pfllib_are_rejected(tmp_path: Path) -> None:
    for make, words in (
        (no_folder, ("there is no folder", "train and test")),
        (empty_folder, ("must have folders train and test",)),
        (no_test, ("must have folders train and test with the same files",)),
        (other_clients, ("with the same files",)),
        (other_shape, ("test/0.npz has inputs of shape (3,)", "alike")),
        (no_data, ("0.npz cannot be read", "data.npy")),
        (plain_array, ("0.npz cannot be read", "not the dict of a client")),
        (link, ("is a symbolic link out of its folder",)),
        (exabyte, ("0.npz",)),
    ):
        with case(make.__name__):
            place = tmp_path / make.__name__
            make(place)
            with input_error(*words):
                pfllib.convert(place)


def news(lengths: list[int]) -> Any:
    """Return texts as PFLlib writes those of AG News: pairs of ids and their number."""
    pairs = np.empty((len(lengths), 2), dtype=object)
    for row, length in enumerate(lengths):
        pairs[row, 0], pairs[row, 1] = [row + 1] * length, length
    return pairs


@pytest.mark.parametrize(
    ("x", "name", "rows", "padding"),
    [
        (np.array([[1, 5], [2, 3]]), "tokens", [[1, 5], [2, 3]], None),  # as of Shakespeare
        (news([2, 2]), "tokens", [[1, 1], [2, 2]], None),
        (news([3, 1]), "tokens", [[1, 1, 1], [2, 3, 3]], 3),
        ([[1, 2, 3], [4]], "tokens", [[1, 2, 3], [4, 5, 5]], 5),
        ([[0.5, 1.0], [2.0, 3.0]], "features", [[0.5, 1.0], [2.0, 3.0]], None),  # as of its synthetic dataset
    ],
)
def test_texts_and_lists_are_read(x: Any, name: str, rows: list[Any], padding: int | None, tmp_path: Path) -> None:
    for part in ("train", "test"):
        shard(tmp_path / f"pfl/{part}/0.npz", x, [1.0, 0.0])  # labels in a list, as floats
    made = pfllib.convert(tmp_path / "pfl")
    assert made[name].tolist() == rows * 2
    assert made["labels"].tolist() == [1, 0, 1, 0]
    assert made.get("padding") == padding
    np.savez(tmp_path / "mine.npz", **made)
    samples = load("npz:mine.npz", tmp_path)
    assert samples.inputs.tolist() == rows * 2
    assert samples.vocabulary is None or samples.vocabulary.padding == padding


def test_texts_of_several_lengths_are_filled_up_over_all_files(tmp_path: Path) -> None:
    shard(tmp_path / "train/0.npz", np.array([[1, 2]]), np.array([0]))
    shard(tmp_path / "test/0.npz", np.array([[3, 4, 5]]), np.array([1]))
    made = pfllib.convert(tmp_path)
    assert made["tokens"].tolist() == [[1, 2, 6], [3, 4, 5]]
    assert made["padding"] == 6


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (["a text", "another"], [0, 1], "has texts as 'x': write them to a table"),
        (np.zeros((2, 3, 4), int), [0, 1], "integers 'x' of shape (2, 3, 4), and tokens have (n, length)"),
        ([[1.0, 2.0], [3.0, 4.0]], [0.5, 1.0], "has the label 0.5 in row 0"),
        ([[1.0, 2.0], [3.0]], [0, 1], "several lengths and are not ids of tokens"),
        ([], [], "no arrays 'x' and 'y'"),
    ],
)
def test_what_is_neither_is_refused(x: Any, y: Any, words: str, tmp_path: Path) -> None:
    for part in ("train", "test"):
        shard(tmp_path / f"{part}/0.npz", x, y)
    with input_error("0.npz", words):
        pfllib.convert(tmp_path)
