"""A client's own file: what is asked of it."""

import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from real_clients import deal_out

from ktpfl_flower.client import client_file
from ktpfl_flower.client.member import Member
from ktpfl_pipeline.core.errors import InputError


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"client": None}, "client"),
        ({"color": "red"}, "color does not exist"),
        ({"owner": "me"}, "does not name the owners"),
        ({"source": "npz:nothing.npz"}, "there is no file"),
        ({"source": "npz:several.npz"}, "has samples of a, b"),
        ({"source": "npz:few.npz"}, "each client needs at least"),
        ({"architecture": None}, "architecture"),
        ({"name": "a\nb"}, "at most 100 printable characters"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(tmp_path, changes, sentence):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "several.npz", images=images, labels=labels, clients=np.array(["a", "b"] * 10))
    np.savez(tmp_path / "few.npz", images=images[:2], labels=labels[:2])
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    with pytest.raises(InputError, match=sentence):
        own = client_file.read(client_file.ClientFile, file)
        client_file.splits(own, client_file.samples(own, tmp_path)[0], 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architecture": "lenett"}, "Client 0 .*'lenett' is unknown"),
        ({"architecture": "my_package.nets:wide_mlp"}, "cannot use code or folders of their own"),
        ({"source": "npz:nothing.npz"}, "there is no file"),
    ],
)
def test_who_starts_a_client_is_told_what_the_server_would_be(tmp_path, changes, sentence):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    Member(file).check()
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    with pytest.raises(InputError, match=sentence):
        Member(file).check()


def test_an_owner_takes_its_own_samples_and_its_own_test_split(tmp_path):
    images, labels = np.arange(40, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2), np.arange(40) // 2 % 2
    owners, test = np.array(["a", "b"] * 20), np.arange(40) >= 30
    np.savez(tmp_path / "all.npz", images=images, labels=labels, clients=owners, test=test)
    own = client_file.ClientFile(client=0, source="npz:all.npz", owner="b", architecture="mlp")
    train, validation, tested = client_file.splits(own, client_file.samples(own, tmp_path)[0], 0)
    assert sorted(tested.inputs[:, 0, 0, 0].tolist()) == [31, 33, 35, 37, 39]
    assert len(train) + len(validation) == 15
    assert all(value % 2 for value in train.inputs[:, 0, 0, 0].tolist())


def test_an_owner_is_tested_on_the_images_of_its_test_folder(tmp_path):
    for part, shift in (("train", 0), ("test", 100)):
        for name in ("cat", "dog"):
            (tmp_path / "scans" / part / name).mkdir(parents=True)
            for number in range(8):
                Image.new("L", (8, 8), shift + number).save(tmp_path / "scans" / part / name / f"{number}.png")
    own = client_file.ClientFile(client=0, source="folder:scans", architecture="mlp")
    train, validation, tested = client_file.splits(own, client_file.samples(own, tmp_path)[0], 0)
    assert len(tested) == 16
    assert tested.inputs.min() == 100
    assert max(train.inputs.max(), validation.inputs.max()) < 100


def test_a_file_that_is_none_is_told_of(tmp_path):
    for text in ("", "- a", "a: [", "client: 0"):
        (tmp_path / "mine.yml").write_text(text)
        with pytest.raises(InputError, match=r"mine\.yml"):
            Member(tmp_path / "mine.yml")
    with pytest.raises(InputError, match="cannot be read"):
        Member(tmp_path / "yours.yml")


SAMPLES = "client: 0\nsource: npz:a.npz\narchitecture: mlp\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SAMPLES.replace("0", "010"), r"mine\.yml, line 1: YAML reads 010 as 8"),
        (SAMPLES + "class_names: [01, 02, 08]", r"mine\.yml, line 4: YAML reads 08 as a text"),
        (SAMPLES + "epsilon: 1:30", "YAML reads 1:30 as a number of minutes"),
        (SAMPLES + "class_names: [yes, no]", r"class_names\.0 is true \(YAML reads yes, no, on and off as true"),
        (SAMPLES + "client: 1", r"mine\.yml is not valid YAML \(found client twice"),
    ],
)
def test_values_that_yaml_changes_are_refused(tmp_path, text, sentence):
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(InputError, match=sentence):
        Member(tmp_path / "mine.yml")


def test_a_power_of_ten_is_a_number_as_in_an_experiment(tmp_path):
    (tmp_path / "mine.yml").write_text(SAMPLES + "test_share: 3e-1\nname: 2024-01-05")
    own = client_file.read(client_file.ClientFile, tmp_path / "mine.yml")
    assert (own.test_share, own.name) == (0.3, "2024-01-05")


def pipe(file):
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (pipe, "is not a file"),
        (Path.mkdir, "is not a file"),
        (lambda file: file.symlink_to("/dev/zero"), "is not a file"),
        (lambda file: file.write_text("[" * 50_000), "is nested too deeply to be read"),
        (lambda file: file.write_text("{a: " * 50_000), "is nested too deeply to be read"),
        (lambda file: file.write_bytes(b"#" * (2**20 + 1)), "has 1,048,577 bytes"),
        (lambda file: file.write_bytes(b"\xff\xfe\x00"), "is not valid YAML"),
    ],
    ids=["pipe", "folder", "device", "brackets", "braces", "size", "bytes"],
)
def test_a_file_that_cannot_be_read_ends_with_a_sentence(tmp_path, make, sentence):
    make(tmp_path / "mine.yml")
    with pytest.raises(InputError, match=rf"mine\.yml {sentence}"):
        Member(tmp_path / "mine.yml")


def test_the_window_and_unreadable_files_of_images_are_treated_as_in_an_experiment(tmp_path, caplog):
    for name, gray in (("a", 1000), ("b", 3000)):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for number in range(8):
            Image.fromarray(np.full((8, 8), gray, np.uint16)).save(tmp_path / "scans" / name / f"{number}.png")
    (tmp_path / "scans" / "b" / "9.png").write_bytes(b"no image")

    def read(**image):
        given = {
            "client": 0,
            "source": "folder:scans",
            "architecture": "mlp",
            "image": {"channels": 1, "size": 8, **image},
        }
        return client_file.samples(client_file.understood(client_file.ClientFile, given, "x"), tmp_path)[0]

    with pytest.raises(InputError, match=r"9\.png"):
        read(window=[0, 4000])
    assert read(window=[0, 4000], unreadable="skip").inputs.flatten(1).float().mean(dim=1).round().tolist() == (
        [64.0] * 8 + [191.0] * 8
    )
    assert "reading skips 1 of 17 images" in caplog.text
    with pytest.raises(InputError, match="more than 8 bits"):
        read(unreadable="skip")


def photographs(folder, *classes):
    for place, name in enumerate(classes):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (8, 8), 40 * place + number).save(folder / "images" / name / f"{number}.png")


@pytest.mark.parametrize(
    ("named", "labels", "names"),
    [
        ([], {0, 1}, ["benign", "normal"]),
        (["benign", "malignant", "normal"], {0, 2}, ["benign", "malignant", "normal"]),
        (["normal", "benign"], {0, 1}, ["normal", "benign"]),
    ],
)
def test_labels_are_brought_into_the_order_of_the_file_s_class_names(tmp_path, named, labels, names):
    photographs(tmp_path, "benign", "normal")
    own = client_file.ClientFile(client=0, source="folder:images", architecture="mlp", class_names=named)
    found, known, _ = client_file.samples(own, tmp_path)
    assert set(found.labels.tolist()) == labels and known == names
    normal = found.inputs[found.labels == names.index("normal")]
    assert normal.min() >= 40  # its images, whatever its number


def test_a_class_that_the_file_does_not_name_is_told_of(tmp_path):
    photographs(tmp_path, "benign", "odd")
    own = client_file.ClientFile(client=0, source="folder:images", architecture="mlp", class_names=["benign", "normal"])
    with pytest.raises(InputError, match=r"class_names is benign, normal, but folder:images also has .* class 'odd'"):
        client_file.samples(own, tmp_path)


def numbered(folder, *labels):
    """Write images with these labels, which have no names."""
    np.savez(folder / "mine.npz", images=np.zeros((len(labels), 8, 8), np.uint8), labels=np.array(labels))
    return {"client": 0, "source": "npz:mine.npz", "architecture": "mlp"}


@pytest.mark.parametrize(
    ("labels", "names", "odd"), [(range(1, 11), range(1, 11), 10), ((5, 9), (5, 9), 5), (range(3), "ab", 2)]
)
def test_a_label_without_a_name_is_told_of(tmp_path, labels, names, odd):
    own = client_file.ClientFile(**numbered(tmp_path, *labels), class_names=[str(name) for name in names])
    last = len(names) - 1
    told = f"{last + 1} names, for the labels from 0 to {last}, but npz:mine.npz also has label {odd}\\."
    with pytest.raises(InputError, match=told):
        client_file.samples(own, tmp_path)


def test_labels_without_names_of_the_source_are_places_in_the_list(tmp_path):
    own = client_file.ClientFile(**numbered(tmp_path, 1, 2, 1), class_names=["a", "1", "2", "b"])
    found, names, _ = client_file.samples(own, tmp_path)
    assert (found.labels.tolist(), names) == ([1, 2, 1], ["a", "1", "2", "b"])


def test_names_of_classes_are_text_and_different():
    given = {"client": 0, "source": "npz:a.npz", "architecture": "mlp"}
    assert client_file.understood(client_file.ClientFile, {**given, "class_names": [0, 1]}, "x").class_names == [
        "0",
        "1",
    ]
    with pytest.raises(InputError, match="class_names has a twice"):
        client_file.understood(client_file.ClientFile, {**given, "class_names": ["a", "a"]}, "x")
