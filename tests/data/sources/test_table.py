"""Tables of image files: path, label, and perhaps client and split."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from images import GREY, draw

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.warnings import collected
from ktpfl_pipeline.data.sources import Reading, load, load_public

HEAD = "path,label,client,split,age\n"
ROWS = "a/1.png,10,north,train,50\na/2.png,2,south,test,\nb c.png,10,north,val,60\n"


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    for name, image in zip(("a/1.png", "a/2.png", "b c.png"), GREY, strict=False):
        draw(tmp_path / "shots" / name, image)
    return tmp_path / "shots"


def write(shots: Path, text: str) -> str:
    (shots / "photos.csv").write_text(text, encoding="utf-8")
    return "table:shots/photos.csv"


def test_images_labels_clients_and_split(shots: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples: Any = load(write(shots, HEAD + ROWS), shots.parent)
    assert np.array_equal(samples.inputs[:, 0].numpy(), GREY[:3])
    assert samples.class_names == ("2", "10")
    assert samples.labels.tolist() == [1, 0, 1]
    assert samples.names == ("north", "south")
    assert samples.owners.tolist() == [0, 1, 0]
    assert samples.test.tolist() == [False, True, False]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("clients,splits", "'clients' ('client'?), 'splits' ('split'?)"),
        ("client,groups", "'groups' ('group'?)"),
        ("age,patient", ""),
    ],
)
def test_columns_with_nearly_the_name_of_one_that_is_read_are_told(shots: Path, columns: str, told: str) -> None:
    with collected() as found:
        load(write(shots, f"path,label,{columns}\na/1.png,1,train,train\na/2.png,2,val,val\n"), shots.parent)
    assert [each.kind for each in found] == ["Unread columns"] * bool(told)
    assert all(told in each.text for each in found)


def test_a_group_belongs_to_its_client(shots: Path) -> None:
    rows = "a/1.png,1,7,north\na/2.png,2,7,south\nb c.png,2,8,north\n"
    samples = load(write(shots, f"path,label,group,client\n{rows}"), shots.parent)
    assert samples.groups is not None
    assert samples.groups.tolist() == [0, 2, 1]
    (shots / "a/1.png").write_bytes(b"no image")
    samples = load(write(shots, f"path,label,group,hospital\n{rows}"), shots.parent, reading=Reading(skip=True))
    assert samples.groups is not None
    assert samples.groups.tolist() == [0, 1], "without clients, a group is one"


def test_rows_of_val_are_tested_on_where_there_is_no_test(shots: Path) -> None:
    """As a folder's images of `val` are."""
    samples = load(write(shots, "path,label,split\na/1.png,1,train\na/2.png,2,val\n"), shots.parent)
    assert samples.test is not None
    assert samples.test.tolist() == [False, True]


def test_path_and_label_are_enough_and_public_images_need_no_label(shots: Path) -> None:
    source = write(shots, "Label;Path\ncat;a/1.png\ndog;b c.png\n")
    samples = load(source, shots.parent)
    assert type(samples).__name__ == "LabeledDataset"
    assert samples.class_names == ("cat", "dog")
    assert samples.test is None
    assert len(load_public(write(shots, "path\na/1.png\n"), "digits", shots.parent)) == 1


def test_rows_without_their_file_are_left_out_on_request(shots: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = write(shots, HEAD + "gone.png,2,west,train,\n" + ROWS)
    (shots / "a/1.png").write_bytes(b"no image")
    samples: Any = load(source, shots.parent, reading=Reading(skip=True))
    assert samples.labels.tolist() == [0, 1]
    assert samples.owners.tolist() == [1, 0]
    assert np.array_equal(samples.inputs[:, 0].numpy(), GREY[1:3])
    assert "lists 4 images, and its folder lacks 1 of them: gone.png. Missing images are skipped." in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file,label\na/1.png,a\n", "has no column 'path', only file, label"),
        (
            HEAD + "x.png,1,n,train,\ny.png,1,n,train,\n" + ROWS,
            r"5 images, and its folder lacks 2 of them: x.png, y.png",
        ),
        ("path,label\na/1.png,\n", "has no label in row 2"),
        ("path,label\na/1.png,1\na/../a/1.png,2\n", "lists a/1.png 2 times"),
        ("path,label\n../secret.png,1\n", "lists ../secret.png, which is outside its folder"),
        ("path,label\n/etc/passwd,1\n", "outside its folder"),
        ("path,label,split\na/1.png,1,later\n", "the split 'later' in row 2: write train, val or test"),
        ("path,label\na/1.png\n", "row 2 has 1 cell and the first row has 2"),
        ("path,label\n", "has column names and no rows: add a row for each sample"),
        ("path,label\na,1\n", "is not a file that can be read"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str, shots: Path) -> None:
    with pytest.raises(InputError, match=words):
        load(write(shots, text), shots.parent)
