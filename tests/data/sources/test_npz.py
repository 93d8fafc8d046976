import io
import os
import sys
import zipfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import case
from images import GREY, LABELS, RGB, draw
from input_errors import input_error

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.sources import load, load_public, npz


def save(path: Path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_npz_gives_the_arrays_as_they_are(tmp_path):
    for images, dtype in (
        (GREY, "int64"),
        (GREY[..., None], "uint8"),
        (RGB, ">i4"),
        (np.asfortranarray(RGB), "uint64"),
    ):
        with case(images.shape, dtype):
            save(tmp_path / "mine.npz", images=images, labels=LABELS.astype(dtype))
            samples = load("npz:mine.npz", tmp_path)
            assert samples.inputs.is_contiguous()
            assert np.array_equal(samples.inputs.permute(0, 2, 3, 1).numpy(), images.reshape(4, 6, 5, -1))
            assert samples.labels.dtype == torch.int64
            assert samples.labels.tolist() == [0, 2, 2, 5]  # class numbers as they are, though 1, 3 and 4 have no image


def test_features_of_any_shape_are_read_as_float32(tmp_path):
    for shape, dtype in product([(4, 3), (4, 2, 5), (4, 2, 3, 5)], ["f2", ">f4", "f8"]):
        with case(shape, dtype):
            features = np.arange(np.prod(shape)).reshape(shape).astype(dtype) / 8
            samples = load(f"npz:{save(tmp_path / 'mine.npz', features=features, labels=LABELS)}", tmp_path)
            assert type(samples) is LabeledDataset
            assert samples.inputs.dtype == torch.float32
            assert np.array_equal(samples.inputs.numpy(), features)


def test_each_feature_has_a_name_and_a_value_for_missing_ones_or_none_has(tmp_path):
    for name, values in (("columns", np.array(["age", "bmi"])), ("fill", np.zeros(2))):
        save(tmp_path / "mine.npz", features=np.ones((4, 3)), labels=LABELS, **{name: values})
        with case(name), input_error(f"has 3 features per sample and 2 values in '{name}': save one per feature."):
            load("npz:mine.npz", tmp_path)


def test_two_features_of_one_name_are_refused(tmp_path):
    save(tmp_path / "mine.npz", features=np.ones((4, 3)), labels=LABELS, columns=np.array(["age", "bmi", "age"]))
    with input_error("mine.npz has 'age' twice in 'columns': each feature has a name of its own."):
        load("npz:mine.npz", tmp_path)


def test_owners_are_numbered_in_sorted_order(tmp_path):
    for clients, names in (
        (np.array([10, 9, 10, -1], "i2"), ("-1", "9", "10")),
        (np.array(["b", "a", "b", "é"]), ("a", "b", "é")),
        (np.array([b"b", b"a", b"b", "é".encode()]), ("a", "b", "é")),
    ):
        with case(names):
            save(tmp_path / "mine.npz", images=GREY, labels=LABELS, clients=clients, test=[0, 1, 0, 1])
            samples = load("npz:mine.npz", tmp_path)
            assert isinstance(samples, OwnedDataset)
            assert samples.names == names
            assert len(set(samples.owners.tolist())) == 3
            assert samples.owners[0] == samples.owners[2]
            assert samples.test.tolist() == [False, True, False, True]
            kept = load("npz:mine.npz", tmp_path, classes=[2, 5])
            assert torch.equal(kept.owners, samples.owners[1:])
            assert kept.labels.tolist() == [0, 0, 1]


def test_public_inputs_come_with_the_private_ones_or_need_no_labels(tmp_path):
    save(tmp_path / "mine.npz", images=GREY, labels=LABELS, public=RGB)
    save(tmp_path / "series.npz", features=np.ones((2, 3, 4)), public=np.zeros((5, 3, 4), "f2"))
    assert np.array_equal(load_public("included", "npz:mine.npz", tmp_path).permute(0, 2, 3, 1).numpy(), RGB)
    assert load_public("included", "npz:series.npz", tmp_path).shape == (5, 3, 4)
    assert torch.equal(load_public("npz:series.npz", "digits", tmp_path), torch.ones(2, 3, 4))
    assert len(load_public("digits", "npz:mine.npz", tmp_path)) == 1797
    save(tmp_path / "none.npz", images=GREY, labels=LABELS)
    with input_error("none.npz has no array 'public'", "under that name", "open_part"):
        load_public("included", "npz:none.npz", tmp_path)
    with input_error("'digits' brings no public inputs", "choose open_part"):
        load_public("included", "digits", tmp_path)


def test_an_array_of_another_name_is_refused_in_public_files_too(tmp_path):
    save(tmp_path / "public.npz", images=GREY, label=LABELS)
    with input_error("'label', which is not known (did you mean 'labels'?)", "leave it out"):
        load_public("npz:public.npz", "digits", tmp_path)


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
    with input_error("class 1 is not in source 'npz:mine.npz'", "0, 2, 5"):
        load("npz:mine.npz", tmp_path, classes=[0, 1])


def test_npz_without_labeled_images_is_an_input_error(tmp_path):
    for arrays, words in (
        ({"x": GREY, "y": LABELS}, ("no array 'images', 'features' or 'tokens', only x, y", "savez_compressed")),
        ({"images": GREY}, ("no array 'labels', only images",)),
        ({}, ("no array 'images', 'features' or 'tokens', only none",)),
        ({"images": GREY / 255, "labels": LABELS}, ("'images'", "is float64", "must be uint8", "images * 255")),
        ({"images": GREY.astype("int32"), "labels": LABELS}, ("is int32", "must be uint8")),
        ({"images": GREY[0], "labels": LABELS[:6]}, ("shape (6, 5)", "N x H x W")),
        ({"images": RGB[..., [0] * 5], "labels": LABELS}, ("shape (4, 6, 5, 5)", "with 1 to 4 channels")),
        ({"images": RGB.transpose(0, 3, 1, 2), "labels": LABELS}, ("shape (4, 3, 6, 5)", "transpose(0, 2, 3, 1)")),
        ({"images": GREY[:0], "labels": LABELS[:0]}, ("is empty", "(0, 6, 5)")),
        ({"images": GREY[:, :0], "labels": LABELS}, ("is empty", "(4, 0, 5)")),
        ({"images": GREY, "labels": LABELS[:3]}, ("4 images and 3 labels", "as many labels as images")),
        ({"images": GREY, "labels": LABELS + 0.5}, ("the label 0.5 in row 0", "class numbers")),
        (
            {"images": GREY, "labels": LABELS[:, None]},
            ("'labels'", "shape (4, 1)", "integers or text of shape (N,)"),
        ),
        ({"images": GREY, "labels": LABELS > 0}, ("'labels'", "bool", "integers")),
        ({"images": GREY, "labels": LABELS - 1}, ("the label -1 in row 0", "number the classes")),
        ({"images": GREY, "labels": np.full(4, 2**64 - 1, np.uint64)}, ("18446744073709551615", "from 0 to 9999")),
        ({"images": GREY, "labels": np.full(4, 10_000)}, ("10000", "from 0 to 9999")),
        (
            {"images": GREY, "features": GREY / 2, "labels": LABELS},
            ("'images' and the array 'features'", "one of them"),
        ),
        ({"features": GREY, "labels": LABELS}, ("'features'", "is uint8 and must be float16", "astype('float32')")),
        ({"features": np.ones(4), "labels": LABELS}, ("shape (4,)", "N x F", "reshape")),
        ({"features": np.ones((4, 1, 1, 1, 1)), "labels": LABELS}, ("shape (4, 1, 1, 1, 1)", "reshape")),
        ({"features": np.ones((4, 0)), "labels": LABELS}, ("is empty (shape (4, 0))",)),
        ({"features": np.diag([1, 1, np.nan, np.inf]), "labels": LABELS}, ("nan in row 2", "count from 0", "replace")),
        ({"features": np.diag([1, 1e39, 1, 1]), "labels": LABELS}, ("inf in row 1",)),
        ({"images": GREY, "labels": LABELS, "clients": LABELS / 1}, ("'clients'", "float64", "integers or text")),
        ({"images": GREY, "labels": LABELS, "clients": LABELS[:3]}, ("4 images and 3 clients", "as many")),
        ({"images": GREY, "labels": LABELS, "clients": np.array([b"\xff"] * 4)}, ("not a whole .npz", "utf-8")),
        ({"images": GREY, "labels": LABELS, "clients": ["a", "b", "", "c"]}, ("a client named ''", "rename it")),
        ({"images": GREY, "labels": LABELS, "clients": ["\x1b[31m"] * 4}, (r"named '\x1b[31m'", "printable")),
        ({"images": GREY, "labels": LABELS, "test": LABELS > 0}, ("'test' but no array", "the owner of each sample")),
        ({"images": GREY, "labels": LABELS, "clients": LABELS, "test": LABELS}, ("'test'", "other than 0 and 1")),
        ({"images": GREY, "labels": LABELS, "clients": LABELS, "test": LABELS / 1}, ("'test'", "true or false")),
        (
            {"images": GREY, "labels": LABELS, "clients": LABELS, "tests": LABELS > 0},
            (
                "'tests', which is not known (did you mean 'test'?)",
                "tokens, labels, clients, test, groups, classes, columns, fill, missing, vocabulary, padding, public;",
            ),
        ),
        ({"images": GREY, "labels": LABELS, "hospital": LABELS}, ("'hospital', which is not known: the names",)),
    ):
        with case(words):
            save(tmp_path / "bad.npz", **arrays)
            with input_error(*words) as caught:
                load("npz:bad.npz", tmp_path)
            assert str(tmp_path / "bad.npz") in str(caught.value)


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


def test_every_prefix_and_every_flipped_byte_loads_rightly_or_is_an_input_error(tmp_path):
    save(tmp_path / "whole.npz", images=GREY, labels=LABELS)
    data, whole = (tmp_path / "whole.npz").read_bytes(), load("npz:whole.npz", tmp_path)
    for at in range(0, len(data), 3):
        for damaged in (data[:at], flip(data, at)):
            (tmp_path / "bad.npz").write_bytes(damaged)
            try:
                samples = load("npz:bad.npz", tmp_path)
            except InputError as error:
                assert "bad.npz" in str(error)
                continue
            assert torch.equal(samples.inputs, whole.inputs)
            assert torch.equal(samples.labels, whole.labels)


def claim(shape) -> bytes:
    """A header that claims a uint8 array of `shape`, and no data."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_read(tmp_path, monkeypatch):
    zipped(tmp_path / "bomb.npz", images=claim((10**6, 10**6, 10**3)), labels=claim((10**6,)) + bytes(10**6))
    monkeypatch.setattr(npz.np, "load", lambda *_, **__: pytest.fail("the arrays were read"))
    with input_error("claims 931,322 GiB of data", "16 GiB allowed", "save fewer or smaller samples"):
        load("npz:bomb.npz", tmp_path)


def test_more_than_half_of_the_free_memory_is_an_input_error(tmp_path, monkeypatch):
    """A machine of 8 GiB has none of the 16 that are allowed."""
    save(tmp_path / "mine.npz", images=np.zeros((64, 256, 256), np.uint8), labels=np.zeros(64, int))
    monkeypatch.setattr(resources, "free_memory", lambda: 10 * 2**20)
    monkeypatch.setattr(sys, "platform", "linux")
    assert len(load("npz:mine.npz", tmp_path)) == 64
    monkeypatch.setattr(resources, "free_memory", lambda: 6 * 2**20)
    with input_error("mine.npz claims 4 MiB of data, more than half of the free memory (3 MiB)", "fewer or smaller"):
        load("npz:mine.npz", tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")  # where it is not known
    assert len(load("npz:mine.npz", tmp_path)) == 64


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_input_error(tmp_path):
    save(tmp_path / "mine.npz", images=GREY, labels=LABELS).chmod(0)
    with input_error("mine.npz cannot be read (Permission denied)", "may be read"):
        load("npz:mine.npz", tmp_path)
    draw(tmp_path / "mine/cats/1.png", GREY[0])
    (tmp_path / "mine/cats/1.png").chmod(0)
    with input_error("1.png cannot be read (Permission denied)", "may be read"):
        load("folder:mine", tmp_path)
