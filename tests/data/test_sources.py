import ast
import gzip
import hashlib
import io
import os
import pickle
import re
import socket
import struct
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from sklearn.datasets import load_digits

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data import sources
from ktpfl_pipeline.data.sources import SOURCES, adapt, load


def refused(*words: str):
    """Expect an InputError of one or two sentences whose message holds every one of `words`, in that order."""
    return pytest.raises(InputError, match="(?s)^[^\n]*" + ".*".join(re.escape(word) for word in words))


# -------------------------------------------------------------------------------------------------------------- digits


def test_digits_are_grey_images_over_the_full_range(tmp_path):
    samples = load("digits", tmp_path)
    assert samples.images.shape == (1797, 1, 8, 8)
    assert samples.images.dtype == torch.uint8
    assert samples.labels.dtype == torch.int64
    assert samples.images.unique()[[0, 1, -1]].tolist() == [0, 16, 255]  # 0, 1 and 16 of 16; 255/16 is 15.9
    assert samples.labels[:10].tolist() == list(range(10))  # as scikit-learn orders them


def test_digits_are_those_that_scikit_learn_loads(tmp_path):
    expected, samples = load_digits(), load("digits", tmp_path)
    assert np.array_equal(np.rint(samples.images[:, 0].numpy() * (16 / 255)), expected.images)
    assert np.array_equal(samples.labels.numpy(), expected.target)


def test_classes_are_renumbered_in_the_order_given(tmp_path):
    everything, kept = load("digits", tmp_path), load("digits", tmp_path, classes=[7, 3])
    assert len(kept) == int((everything.labels == 7).sum() + (everything.labels == 3).sum())
    assert torch.equal(kept.images[kept.labels == 0], everything.images[everything.labels == 7])
    assert torch.equal(kept.images[kept.labels == 1], everything.images[everything.labels == 3])


@pytest.mark.parametrize(
    ("source", "classes", "words"),
    [
        ("digit", None, ("'digit' is unknown", "did you mean 'digits'", "cifar10, cifar100")),
        ("my/images.npz", None, ("'my/images.npz' is unknown", "is given as 'npz:my/images.npz'")),
        ("", None, ("'' is unknown", "choose from digits")),
        ("digits:8", None, ("takes no argument", "'8'", "leave out ':8'")),
        ("mnist:train", None, ("takes no argument", "'train'")),
        ("emnist:leters", None, ("'leters' is unknown", "did you mean 'letters'", "byclass, bymerge")),
        ("npz", None, ("needs a path", "write 'npz:yourfile.npz'")),
        ("npz:absent.npz", None, ("no file", "absent.npz", "correct the path")),
        ("npz:" + "long" * 1000, None, ("no file", "longlong")),
        ("folder:", None, ("needs a path", "write 'folder:yourfolder'")),
        ("folder:absent", None, ("no folder", "absent", "correct the path")),
        ("digits", [3, 10], ("class 10 is not in source 'digits'", "0 to 9")),
        ("digits", [-1], ("class -1 is not in source",)),
        ("digits", [], ("classes [] must name one class or more",)),
        ("digits", [1, 2, 1], ("classes [1, 2, 1]", "each once")),
    ],
)
def test_unusable_sources_and_classes_are_refused(tmp_path, source, classes, words):
    with refused(*words):
        load(source, tmp_path, classes)


# ----------------------------------------------------------------------------------------------- torchvision's datasets

NUMBERS = np.random.default_rng(0)
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
    assert samples.images.shape == (10, 1, 28, 28)
    assert samples.labels.tolist() == list(range(10))  # train, then test
    assert torch.equal(samples.images[6:, 0], torch.from_numpy(made["t10k-images"]).to(torch.uint8))
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
    assert torch.equal(again.images, first.images)
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
    with refused("no route to host", f"put {archives}", f"into {tmp_path / place_of}", "`source: digits`", "npz:"):
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
    assert caught.type is InputError
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
    with refused("timed out", "put cifar-10-python.tar.gz"):
        load("cifar10", tmp_path)
    assert set(seen) == {60.0}
    assert socket.getdefaulttimeout() is None


def test_a_damaged_archive_is_named(tmp_path, mnist):
    _, archives = mnist
    place(tmp_path / "MNIST/raw", {**archives, "t10k-images-idx3-ubyte.gz": archives["t10k-images-idx3-ubyte.gz"][:50]})
    with refused(f"{tmp_path}/MNIST/raw/t10k-images-idx3-ubyte.gz is there but incomplete", "replace it"):
        load("mnist", tmp_path)


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path, offline):
    (tmp_path / "file").write_text("in the way")
    with refused("could not be downloaded into", "put cifar-10-python.tar.gz"):
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
    assert samples.images.is_contiguous()
    assert np.array_equal(samples.images.numpy(), images)
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
    assert np.array_equal(samples.images[:, 0].numpy(), upright)
    assert samples.labels.tolist() == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------------------------------------------------------ npz


def save(path: Path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


GREY = NUMBERS.integers(0, 256, (4, 6, 5)).astype(np.uint8)
RGB = NUMBERS.integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
LABELS = np.array([0, 2, 2, 5])


@pytest.mark.parametrize("images", [GREY, GREY[..., None], RGB, np.asfortranarray(RGB)])
@pytest.mark.parametrize("dtype", ["int64", "uint8", ">i4", "uint64"])
def test_npz_gives_the_arrays_as_they_are(tmp_path, images, dtype):
    save(tmp_path / "mine.npz", images=images, labels=LABELS.astype(dtype))
    samples = load("npz:mine.npz", tmp_path)
    assert samples.images.is_contiguous()
    assert np.array_equal(samples.images.permute(0, 2, 3, 1).numpy(), images.reshape(4, 6, 5, -1))
    assert samples.labels.dtype == torch.int64
    assert samples.labels.tolist() == [0, 2, 2, 5]  # class numbers as they are, though 1, 3 and 4 have no image


def test_npz_paths_are_absolute_relative_or_from_home(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    path = save(tmp_path / "sub/mine.npz", images=GREY, labels=LABELS)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source, folder in (
        (f"npz:{path}", tmp_path / "other"),
        ("npz:mine.npz", path.parent),
        ("npz:~/sub/mine.npz", tmp_path),
    ):
        assert len(load(source, folder)) == 4


def test_a_class_without_images_is_unknown_to_classes(tmp_path):
    save(tmp_path / "mine.npz", images=GREY, labels=LABELS)
    with refused("class 1 is not in source 'npz:mine.npz'", "0, 2, 5"):
        load("npz:mine.npz", tmp_path, classes=[0, 1])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": GREY, "y": LABELS}, ("no array 'images', only x, y", "savez_compressed")),
        ({"images": GREY}, ("no array 'labels', only images",)),
        ({}, ("no array 'images', only none",)),
        ({"images": GREY / 255, "labels": LABELS}, ("'images'", "is float64", "must be uint8", "images * 255")),
        ({"images": GREY.astype("int32"), "labels": LABELS}, ("is int32", "must be uint8")),
        ({"images": GREY[0], "labels": LABELS[:6]}, ("shape (6, 5)", "N x H x W")),
        ({"images": RGB[..., :2], "labels": LABELS}, ("shape (4, 6, 5, 2)", "N x H x W x 3")),
        ({"images": RGB.transpose(0, 3, 1, 2), "labels": LABELS}, ("shape (4, 3, 6, 5)", "transpose(0, 2, 3, 1)")),
        ({"images": GREY[:0], "labels": LABELS[:0]}, ("is empty", "(0, 6, 5)")),
        ({"images": GREY[:, :0], "labels": LABELS}, ("is empty", "(4, 0, 5)")),
        ({"images": GREY, "labels": LABELS[:3]}, ("4 images and 3 labels", "as many labels as images")),
        ({"images": GREY, "labels": LABELS / 1}, ("'labels'", "float64", "integers of shape (N,)")),
        ({"images": GREY, "labels": LABELS[:, None]}, ("'labels'", "shape (4, 1)", "integers of shape (N,)")),
        ({"images": GREY, "labels": LABELS > 0}, ("'labels'", "bool", "integers")),
        ({"images": GREY, "labels": LABELS - 1}, ("run from -1 to 4", "number the classes from 0")),
        ({"images": GREY, "labels": LABELS + 2**31}, ("to 2147483653", "at most 9999")),
        ({"images": GREY, "labels": np.full(4, 2**64 - 1, np.uint64)}, ("18446744073709551615", "at most 9999")),
        ({"images": GREY, "labels": np.full(4, 10_000)}, ("to 10000", "at most 9999")),
        ({"images": np.array([GREY, None], dtype=object), "labels": LABELS[:2]}, ("'images'", "Python objects")),
        ({"images": GREY, "labels": LABELS.astype(object)}, ("'labels'", "Python objects")),
    ],
)
def test_npz_that_is_no_labelled_images_is_refused(tmp_path, arrays, words):
    save(tmp_path / "bad.npz", **arrays)
    with refused(*words) as caught:
        load("npz:bad.npz", tmp_path)
    assert str(tmp_path / "bad.npz") in str(caught.value)


def whole_npz(tmp_path) -> bytes:
    return save(
        tmp_path / "whole.npz", images=NUMBERS.integers(0, 256, (50, 20, 20)).astype(np.uint8), labels=np.zeros(50, int)
    ).read_bytes()


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zipped(path: Path, **members: bytes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"not a zip file",
        lambda data: npy(GREY),
        lambda data: flip(data, len(data) // 2),
        lambda data: flip(data, 0),
    ],
)
def test_damaged_npz_files_are_refused(tmp_path, damage):
    data = whole_npz(tmp_path)
    assert len(load("npz:whole.npz", tmp_path)) == 50
    (tmp_path / "bad.npz").write_bytes(damage(data))
    with refused("bad.npz is not a whole .npz file (", "save it again with numpy.savez_compressed"):
        load("npz:bad.npz", tmp_path)


def test_every_prefix_and_every_flipped_byte_loads_rightly_or_is_refused(tmp_path):
    save(tmp_path / "whole.npz", images=GREY, labels=LABELS)
    data, whole = (tmp_path / "whole.npz").read_bytes(), load("npz:whole.npz", tmp_path)
    for at in range(0, len(data), 3):
        for damaged in (data[:at], flip(data, at)):
            (tmp_path / "bad.npz").write_bytes(damaged)
            try:
                samples = load("npz:bad.npz", tmp_path)
            except InputError:
                continue
            assert torch.equal(samples.images, whole.images)
            assert torch.equal(samples.labels, whole.labels)


def test_an_array_shorter_than_its_header_claims_is_refused(tmp_path):
    zipped(tmp_path / "bad.npz", images=npy(GREY)[:-1], labels=npy(LABELS))
    with refused("bad.npz is not a whole .npz file (images.npy is cut short)"):
        load("npz:bad.npz", tmp_path)


def claim(shape) -> bytes:
    """A header that claims a uint8 array of `shape`, and no data."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_read(tmp_path, monkeypatch):
    zipped(tmp_path / "bomb.npz", images=claim((10**6, 10**6, 10**3)), labels=claim((10**6,)) + bytes(10**6))
    monkeypatch.setattr(sources.np, "load", lambda *_, **__: pytest.fail("the arrays were read"))
    with refused("claims 931,322 GiB of images", "16 GiB allowed", "save fewer or smaller images"):
        load("npz:bomb.npz", tmp_path)


def test_more_than_half_of_the_free_memory_is_refused(tmp_path, monkeypatch):
    """A machine of 8 GiB has none of the 16 that are allowed."""
    save(tmp_path / "mine.npz", images=np.zeros((64, 256, 256), np.uint8), labels=np.zeros(64, int))
    monkeypatch.setattr(sources, "free_memory", lambda: 10 * 2**20)
    monkeypatch.setattr(sys, "platform", "linux")
    assert len(load("npz:mine.npz", tmp_path)) == 64
    monkeypatch.setattr(sources, "free_memory", lambda: 6 * 2**20)
    with refused("mine.npz claims 4 MiB of images, more than half of the free memory (3 MiB)", "fewer or smaller"):
        load("npz:mine.npz", tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")  # where it is not known
    assert len(load("npz:mine.npz", tmp_path)) == 64


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(tmp_path):
    save(tmp_path / "mine.npz", images=GREY, labels=LABELS).chmod(0)
    with refused("mine.npz is not a whole .npz file", "Permission denied"):
        load("npz:mine.npz", tmp_path)
    draw(tmp_path / "mine/cats/1.png", GREY[0])
    (tmp_path / "mine/cats/1.png").chmod(0)
    with refused("1.png cannot be read", "Permission denied"):
        load("folder:mine", tmp_path)


def test_a_negative_size_is_refused(tmp_path):
    zipped(tmp_path / "bad.npz", images=claim((-4, 6, 5)), labels=npy(LABELS))
    with refused("is empty (shape (-4, 6, 5))"):
        load("npz:bad.npz", tmp_path)


# --------------------------------------------------------------------------------------------------------------- folder


def draw(path: Path, array: np.ndarray, mode: str | None = None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)


def test_folder_numbers_classes_by_name_and_passes_over_other_files(tmp_path):
    draw(tmp_path / "pets/cat/b.png", RGB[0])
    draw(tmp_path / "pets/cat/a.PNG", RGB[1])
    draw(tmp_path / "pets/ant/z.bmp", RGB[2])
    draw(tmp_path / "pets/.hidden/x.png", RGB[3])
    (tmp_path / "pets/cat/notes.txt").write_text("no image")
    (tmp_path / "pets/cat/._a.png").write_text("no image either")
    samples = load("folder:pets", tmp_path)
    assert np.array_equal(samples.images.permute(0, 2, 3, 1).numpy(), RGB[[2, 1, 0]])
    assert samples.labels.tolist() == [0, 1, 1]


def test_folder_stays_grey_when_all_images_are(tmp_path):
    draw(tmp_path / "a/1.png", GREY[0])
    draw(tmp_path / "b/1.png", GREY[1], "LA")
    samples = load(f"folder:{tmp_path}", Path("elsewhere"))
    assert np.array_equal(samples.images[:, 0].numpy(), GREY[:2])
    draw(tmp_path / "b/2.png", RGB[0], "RGBA")
    samples = load(f"folder:{tmp_path}", Path("elsewhere"))
    assert np.array_equal(samples.images[0].numpy(), np.stack([GREY[0]] * 3))
    assert np.array_equal(samples.images[2].permute(1, 2, 0).numpy(), RGB[0])


def no_subfolder(path: Path):
    draw(path / "1.png", GREY[0])


def empty_class(path: Path):
    draw(path / "a/1.png", GREY[0])
    (path / "b").mkdir()


def other_size(path: Path):
    draw(path / "a/1.png", GREY[0])
    draw(path / "b/2.png", GREY[0].T.copy())


def sixteen_bits(path: Path):
    draw(path / "a/1.png", GREY[0].astype(np.uint16) * 256)


def text(path: Path):
    draw(path / "a/1.png", GREY[0])
    (path / "a/2.png").write_text("not an image")


def cut_short(path: Path):
    draw(path / "a/1.png", NUMBERS.integers(0, 256, (40, 40)).astype(np.uint8))
    whole = (path / "a/1.png").read_bytes()
    (path / "a/2.png").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_subfolder, ("has no subfolders", "subfolder of its own")),
        (empty_class, ("b has no images", ".jpg", "add some or remove the folder")),
        (other_size, ("b/2.png has 6 x 5 pixels and 1.png has 5 x 6", "resize all images to one size")),
        (sixteen_bits, ("1.png has more than 8 bits", "save it with 8 bits")),
        (text, ("a/2.png cannot be read", "replace or remove it")),
        (cut_short, ("a/2.png cannot be read", "replace or remove it")),
    ],
)
def test_unusable_folders_are_refused(tmp_path, make, words):
    make(tmp_path / "bad")
    with refused(*words):
        load("folder:bad", tmp_path)


# ---------------------------------------------------------------------------------------------------------------- adapt


def test_adapt_changes_nothing_when_nothing_is_to_be_done():
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert adapt(images, 1, 8) is images


def test_grey_becomes_rgb_by_repetition():
    images = torch.from_numpy(GREY[:, None, :5])
    assert torch.equal(adapt(images, 3, 5), images.repeat(1, 3, 1, 1))


def test_rgb_becomes_grey_by_luma():
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 20, 30]], dtype=torch.uint8)
    # 0.299 · 255 = 76.2, 0.587 · 255 = 149.7, 0.114 · 255 = 29.1, 10 · 0.299 + 20 · 0.587 + 30 · 0.114 = 18.15
    assert adapt(colours.view(5, 3, 1, 1), 1, 1).flatten().tolist() == [76, 150, 29, 255, 18]


def test_shrinking_is_antialiased_and_growing_interpolates():
    stripes = torch.tensor([0, 255] * 4, dtype=torch.uint8).expand(1, 1, 8, 8)
    assert adapt(stripes, 1, 4).float().std() < 30  # without antialiasing, stripes may survive or alias
    two = torch.tensor([[0, 100], [0, 100]], dtype=torch.uint8).view(1, 1, 2, 2)
    assert adapt(two, 1, 4)[0, 0, 0].tolist() == [0, 25, 75, 100]  # pixel centres: a quarter and three quarters
    assert adapt(torch.full((1, 1, 7, 9), 255, dtype=torch.uint8), 3, 5).unique().tolist() == [255]


@pytest.mark.parametrize("size", [12, 28, 40])
def test_resizing_agrees_with_pillow(size):
    images = NUMBERS.integers(0, 256, (3, 28, 28)).astype(np.uint8)
    ours = adapt(torch.from_numpy(images[:, None]), 1, size)[:, 0].numpy().astype(int)
    pillows = [np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)) for image in images]
    assert np.abs(ours - np.stack(pillows)).max() <= 1


def test_chunks_do_not_change_the_result(monkeypatch):
    images = torch.from_numpy(NUMBERS.integers(0, 256, (7, 3, 6, 5)).astype(np.uint8))
    whole = adapt(images, 1, 9)
    monkeypatch.setattr(sources, "_CHUNK_VALUES", 500)  # 2 images at a time
    assert torch.equal(adapt(images, 1, 9), whole)


@pytest.mark.parametrize(
    ("channels", "size", "words"),
    [
        (2, 8, ("2 image channels", "1 (grey) or 3 (RGB)")),
        (1, 0, ("size 0", "1 pixel or more")),
        (1, 10**6, ("2 images of 1000000 x 1000000", "need more than", "smaller size")),
    ],
)
def test_impossible_shapes_are_refused(channels, size, words):
    with refused(*words):
        adapt(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), channels, size)


# ------------------------------------------------------------------------------------------------------------ contracts


def test_every_source_is_documented_in_its_function():
    assert all(getattr(read, "func", read).__doc__ for read in SOURCES.values())


@pytest.mark.parametrize("module", ["sources", "partition", "public"])
def test_slow_packages_are_imported_where_they_are_used(module):
    tree = ast.parse((Path(sources.__file__).parent / f"{module}.py").read_text())
    imported = {
        name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported - set(sys.stdlib_module_names) <= {"numpy", "torch", "ktpfl_pipeline"}


@pytest.mark.real_data
@pytest.mark.skipif("KTPFL_REAL_DATA" not in os.environ, reason="KTPFL_REAL_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("mnist", (1, 28, 28), 10),
        ("fashion_mnist", (1, 28, 28), 10),
        ("cifar10", (3, 32, 32), 10),
        ("cifar100", (3, 32, 32), 100),
    ],
)
def test_real_images_load_and_adapt(name, shape, classes):
    samples = load(f"npz:{name}.npz", Path(os.environ["KTPFL_REAL_DATA"]))
    assert samples.images.shape[1:] == shape
    assert samples.labels.unique().tolist() == list(range(classes))
    for channels, size in ((1, 28), (3, 32)):
        adapted = adapt(samples.images[:2000], channels, size)
        assert adapted.shape == (2000, channels, size, size)
        # Luma weighs green more than the plain mean does, resizing blurs: the brightness all but stays.
        assert adapted.float().mean().item() == pytest.approx(samples.images[:2000].float().mean().item(), rel=0.03)
