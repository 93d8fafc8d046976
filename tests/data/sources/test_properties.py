"""The readers on arrays, images and paths of any kind, whole or damaged: labeled images, or a sentence."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_files import IMAGES, LABELS, header, idx, npy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources import adapt, downloads, load
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES, MAX_CLASSES

check = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
DTYPES = ["u1", "u1", "u1", "i1", "<i2", ">i4", "i8", "u8", "f4", "f8", "c8", "?", "U3", "S2", "M8[s]", "m8[D]", "V4"]
sizes = st.lists(st.integers(0, 4), max_size=5).map(tuple)


def whole_or_refused(source: str, folder: Path, classes: list[int] | None = None) -> None:
    try:
        samples = load(source, folder, classes)
    except InputError as error:
        message = str(error)
        assert message.isprintable()
        assert message.endswith((".", "?"))
        assert len(message) < 4100
        return
    assert samples.inputs.dtype == torch.uint8
    assert samples.labels.dtype == torch.int64
    assert samples.inputs.is_contiguous()
    assert samples.inputs.ndim == 4
    assert 1 <= samples.inputs.shape[1] <= 4
    assert samples.inputs.numel() > 0
    assert len(samples.inputs) == len(samples.labels)
    assert 0 <= samples.labels.min() <= samples.labels.max() < MAX_CLASSES
    if samples.inputs.shape[1] in (1, 3):
        assert adapt(samples.inputs[:1], (3, 4, 4)).shape == (1, 3, 4, 4)


def damaged(data: st.DataObject, whole: bytes) -> bytes:
    """Flip, cut, insert or double bytes, up to three times."""
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(whole) - 1)))
        piece = data.draw(st.binary(max_size=6) | st.sampled_from([b"\xff" * 4, b"\0" * 8, b"\xff\xff\xff\x7f"]))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "overwrite", "double"]))
        whole = {
            "flip": whole[:at] + bytes([byte ^ 0x41 for byte in whole[at : at + 1]]) + whole[at + 1 :],
            "cut": whole[:at],
            "insert": whole[:at] + piece + whole[at:],
            "overwrite": whole[:at] + piece + whole[at + len(piece) :],
            "double": whole[:at] + whole[at // 2 :],
        }[kind]
    return whole


@check
@given(
    dtype=st.sampled_from(DTYPES),
    shape=sizes | st.just((3, 4, 4)),
    label_dtype=st.sampled_from(DTYPES),
    labels=st.lists(st.sampled_from([0, 1, 2, 9999, 10_000, -1, 2**40, 2**63]), max_size=4),
)
def test_any_arrays_in_an_npz(tmp_path: Path, dtype: str, shape, label_dtype: str, labels: list[int]) -> None:
    with np.errstate(all="ignore"):
        images = np.zeros(shape, dtype)
        found = np.array(labels, dtype=object).astype("f8").astype("i8").astype(label_dtype)
    np.savez(tmp_path / "any.npz", images=images, labels=found)
    whole_or_refused("npz:any.npz", tmp_path)


@check
@given(
    text=st.text(max_size=40)
    | st.sampled_from(["'|u1'", "'|O'", "[('a', '<f8')]", "'<U1000000000'", "None", "['u1', 2]"]).map(
        lambda descr: f"{{'descr': {descr}, 'fortran_order': False, 'shape': (6, 8, 8)}}"
    )
    | st.sampled_from(["(-1,)", "(6, 8, 8, 2**62)", "(True, 8, 8)", "(1e3, 8, 8)", "[6, 8, 8]", "6"]).map(
        lambda shape: f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}"
    ),
    version=st.sampled_from([(1, 0), (2, 0), (3, 0), (4, 0)]),
    length=st.none() | st.integers(0, 2**16 - 1),
    data=st.binary(max_size=400),
)
def test_any_header_in_an_npz(tmp_path: Path, text: str, version: tuple[int, int], length: int, data: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "any.npz", "w") as archive:
        archive.writestr("images.npy", header(text, version, length) + data)
        archive.writestr("labels.npy", npy(LABELS))
    whole_or_refused("npz:any.npz", tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@settings(parent=check, max_examples=25)
@given(data=st.data())
def test_any_damage_to_an_npz(tmp_path: Path, method: int, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("images.npy", npy(IMAGES))
        archive.writestr("labels.npy", npy(LABELS))
    (tmp_path / "any.npz").write_bytes(damaged(data, buffer.getvalue()))
    whole_or_refused("npz:any.npz", tmp_path)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
@settings(parent=check, max_examples=20)
@given(data=st.data(), color=st.booleans())
def test_any_damage_to_an_image(tmp_path: Path, suffix: str, data: st.DataObject, color: bool) -> None:
    place = tmp_path / "any" / "cats"
    place.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    image = Image.fromarray(IMAGES[0])
    (image.convert("RGB") if color and suffix != ".pgm" else image).save(buffer, Image.registered_extensions()[suffix])
    (place / f"1{suffix}").write_bytes(damaged(data, buffer.getvalue()))
    whole_or_refused("folder:any", tmp_path)


@check
@given(data=st.data(), name=st.sampled_from(["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]))
def test_any_damage_to_an_idx_file(tmp_path: Path, data: st.DataObject, name: str) -> None:
    """Those that are not as they claim are fetched anew, which is not possible here."""
    place = tmp_path / "MNIST" / "raw"
    place.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        (place / f"{part}-images-idx3-ubyte").write_bytes(idx(IMAGES))
        (place / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS))
    (place / name).write_bytes(damaged(data, (place / name).read_bytes()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(downloads, "_fetch", refuse)
        whole_or_refused("mnist", tmp_path)


def refuse(*_: object) -> None:
    raise InputError("no network here.")


@check
@given(
    kind=st.sampled_from(["npz:", "folder:", "digits:", "emnist:", "", "NPZ:"]),
    path=st.text(max_size=20) | st.lists(st.sampled_from(["..", ".", "~", "~root", "a", "/", "\0"])).map("/".join),
    classes=st.none() | st.lists(st.integers() | st.sampled_from([2**63, 10**30]), max_size=3),
)
@example(kind="npz:", path="a" * 300, classes=None)
@example(kind="npz:", path="\udce4.npz", classes=None)
def test_any_path(tmp_path: Path, kind: str, path: str, classes: list[int] | None) -> None:
    (tmp_path / "raw").mkdir(exist_ok=True)
    whole_or_refused(kind + path, tmp_path / "raw", classes)
    assert list(tmp_path.iterdir()) == [tmp_path / "raw"]
    assert list((tmp_path / "raw").iterdir()) == []


@check
@given(name=st.text(min_size=1, max_size=12))
@example(name="\n\x1b[31m")
@example(name="\udcff")
@example(name="\u202egnp")
def test_any_name_of_a_class_and_an_image(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("named")
    try:
        place = folder / "any" / name
        place.mkdir(parents=True)
        (place / f"{name}.png").write_bytes(b"no image")
    except (OSError, ValueError):  # not a name that a file can have
        return
    whole_or_refused("folder:any", folder)
