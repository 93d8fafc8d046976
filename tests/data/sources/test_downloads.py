import gzip
import hashlib
import io
import pickle
import socket
import struct
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from images import NUMBERS
from input_errors import input_error

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources import load

MNIST_FILES = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def idx(array):
    """The bytes of an MNIST file."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", size) for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def md5(data):
    return hashlib.md5(data).hexdigest()


@pytest.fixture
def offline(monkeypatch):
    """Refuse every connection, and list what was asked for."""
    asked = []

    def refuse(request, *args, **kwargs):
        asked.append(request.full_url)
        raise URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return asked


@pytest.fixture
def mnist(monkeypatch, offline):
    """{file: content} of a tiny MNIST, which torchvision's class takes for the real one."""
    made = {
        "train-images": NUMBERS.integers(0, 256, (6, 28, 28)),
        "train-labels": np.arange(6),
        "t10k-images": NUMBERS.integers(0, 256, (4, 28, 28)),
        "t10k-labels": np.arange(6, 10),
    }
    archives = {f"{name}.gz": gzip.compress(idx(made[name.rpartition("-idx")[0]])) for name in MNIST_FILES}
    resources = [(name, md5(content)) for name, content in archives.items()]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", resources)
    return made, archives


def place(folder: Path, files: dict[str, bytes]):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def files_below(folder: Path):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_mnist_is_unpacked_from_archives_placed_by_hand(tmp_path, mnist, offline):
    made, archives = mnist
    place(tmp_path / "MNIST/raw", archives)
    samples = load("mnist", tmp_path)
    assert samples.inputs.shape == (10, 1, 28, 28)
    assert samples.labels.tolist() == list(range(10))  # train, then test
    assert torch.equal(samples.inputs[6:, 0], torch.from_numpy(made["t10k-images"]).to(torch.uint8))
    assert offline == []
    assert files_below(tmp_path) == sorted(f"MNIST/raw/{name}" for name in [*MNIST_FILES, *archives])


def test_what_is_there_is_read_without_a_network_and_without_writing(tmp_path, mnist, offline):
    _, archives = mnist
    place(tmp_path / "MNIST/raw", {name: gzip.decompress(archives[f"{name}.gz"]) for name in MNIST_FILES})
    before = files_below(tmp_path)
    assert len(load("mnist", tmp_path)) == 10
    assert files_below(tmp_path) == before
    assert offline == []


def test_an_unpacked_file_cut_short_is_unpacked_again(tmp_path, mnist):
    _, archives = mnist
    place(tmp_path / "MNIST/raw", archives)
    first = load("mnist", tmp_path)
    for name, length in ((MNIST_FILES[0], 100), (MNIST_FILES[1], 0)):
        path = tmp_path / "MNIST/raw" / name
        path.write_bytes(path.read_bytes()[:length])
    again = load("mnist", tmp_path)
    assert torch.equal(again.inputs, first.inputs)
    assert torch.equal(again.labels, first.labels)


def test_a_download_goes_through_torchvision_and_is_kept(tmp_path, mnist, monkeypatch):
    _, archives = mnist

    class Response(io.BytesIO):
        def __init__(self, url):
            super().__init__(archives[url.rpartition("/")[2]])
            self.url, self.length = url, len(self.getvalue())

    monkeypatch.setattr(urllib.request, "urlopen", lambda request, *_, **__: Response(request.full_url))
    assert load("mnist", tmp_path / "data/01_raw").labels.tolist() == list(range(10))
    assert len(files_below(tmp_path)) == 8


@pytest.mark.parametrize(
    ("source", "place_of", "archives"),
    [
        ("mnist", "MNIST/raw", "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz"),
        ("fashion_mnist", "FashionMNIST/raw", "train-images-idx3-ubyte.gz"),
        ("emnist", "EMNIST/raw", "gzip.zip"),
        ("cifar10", "", "cifar-10-python.tar.gz"),
        ("cifar100", "", "cifar-100-python.tar.gz"),
    ],
)
def test_a_failed_download_says_which_files_go_where_and_leaves_nothing(tmp_path, offline, source, place_of, archives):
    files = archives.split(", ")
    with input_error("no route to host", *files, f"into {tmp_path / place_of}", "`source: digits`", "npz:"):
        load(source, tmp_path)
    assert offline
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_leaves_no_half_file(tmp_path, mnist, monkeypatch):
    _, archives = mnist
    place(tmp_path / "MNIST/raw", {"train-images-idx3-ubyte.gz": archives["train-images-idx3-ubyte.gz"]})

    class BreaksOff(io.BytesIO):
        url, length = "http://mirror/file", 1000

        def read(self, *args):
            return super().read(*args) or self.fail()

        def fail(self):
            raise ConnectionResetError("connection reset")

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: BreaksOff(b"half a file"))
    with pytest.raises((InputError, ConnectionResetError)) as caught:
        load("mnist", tmp_path)
    assert isinstance(caught.value, InputError)
    assert files_below(tmp_path) == ["MNIST/raw/train-images-idx3-ubyte.gz"]  # the user's own, untouched


def test_an_interrupted_download_leaves_no_half_file(tmp_path, mnist, monkeypatch):
    def interrupt(url, filename, **_):
        Path(filename).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torchvision.datasets.utils, "_get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr(torchvision.datasets.utils, "_urlretrieve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server_does_not_hang_the_run(tmp_path, monkeypatch):
    seen = []

    def ask(*_, **__):
        seen.append(socket.getdefaulttimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr(urllib.request, "urlopen", ask)
    with input_error("timed out", "put cifar-10-python.tar.gz"):
        load("cifar10", tmp_path)
    assert set(seen) == {60.0}
    assert socket.getdefaulttimeout() is None


def test_a_damaged_archive_is_named(tmp_path, mnist):
    _, archives = mnist
    place(tmp_path / "MNIST/raw", {**archives, "t10k-images-idx3-ubyte.gz": archives["t10k-images-idx3-ubyte.gz"][:50]})
    with input_error(f"{tmp_path}/MNIST/raw/t10k-images-idx3-ubyte.gz is incomplete", "replace it"):
        load("mnist", tmp_path)


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path, offline):
    (tmp_path / "file").write_text("in the way")
    with input_error("could not be downloaded into", "put cifar-10-python.tar.gz"):
        load("cifar10", tmp_path / "file")


@pytest.mark.parametrize(
    ("source", "kind", "key"),
    [("cifar10", torchvision.datasets.CIFAR10, "labels"), ("cifar100", torchvision.datasets.CIFAR100, "fine_labels")],
)
def test_cifar_is_read_from_its_archive(tmp_path, monkeypatch, offline, source, kind, key):
    images = NUMBERS.integers(0, 256, (7, 3, 32, 32)).astype(np.uint8)
    contents = {
        "first": {"data": images[:5].reshape(5, -1), key: [0, 1, 2, 3, 4]},
        "second": {"data": images[5:].reshape(2, -1), key: [8, 9]},
        "meta": {kind.meta["key"]: [str(label) for label in range(10)]},
    }
    members = {name: pickle.dumps(content) for name, content in contents.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{kind.base_folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(kind, "train_list", [["first", md5(members["first"])]])
    monkeypatch.setattr(kind, "test_list", [["second", md5(members["second"])]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "filename": "meta", "md5": md5(members["meta"])})
    monkeypatch.setattr(kind, "tgz_md5", md5(buffer.getvalue()))
    place(tmp_path, {kind.filename: buffer.getvalue()})

    samples = load(source, tmp_path)
    assert samples.inputs.is_contiguous()
    assert np.array_equal(samples.inputs.numpy(), images)
    assert samples.labels.tolist() == [0, 1, 2, 3, 4, 8, 9]
    assert offline == []


@pytest.mark.parametrize(("source", "split", "first"), [("emnist", "letters", 1), ("emnist:digits", "digits", 0)])
def test_emnist_is_turned_upright_and_letters_begin_at_zero(tmp_path, monkeypatch, offline, source, split, first):
    upright = NUMBERS.integers(0, 256, (5, 28, 28)).astype(np.uint8)
    labels = np.arange(5) + first
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
            stem = f"gzip/emnist-{split}-{part}"
            images = gzip.compress(idx(upright[rows].transpose(0, 2, 1)))
            archive.writestr(f"{stem}-images-idx3-ubyte.gz", images)
            archive.writestr(f"{stem}-labels-idx1-ubyte.gz", gzip.compress(idx(labels[rows])))
    monkeypatch.setattr(torchvision.datasets.EMNIST, "md5", md5(packed.getvalue()))
    place(tmp_path / "EMNIST/raw", {"gzip.zip": packed.getvalue()})

    samples = load(source, tmp_path)
    assert np.array_equal(samples.inputs[:, 0].numpy(), upright)
    assert samples.labels.tolist() == [0, 1, 2, 3, 4]
