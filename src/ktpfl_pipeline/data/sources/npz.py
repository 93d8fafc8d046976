"""The source `npz`: an `.npz` file, whose headers are checked before its arrays are read."""

import contextlib
import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError, meant, plural
from ktpfl_pipeline.core.machine.resources import MAX_BYTES, check_claim
from ktpfl_pipeline.data.sources.files import file_in, readable
from ktpfl_pipeline.data.sources.parts import Extent, Part, as_float32, check_columns, extent, joined
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.tokens import MAX_VOCABULARY, vocabulary_of

Header = tuple[tuple[int, ...], "np.dtype[Any]"]  # shape and dtype
Headers = dict[str, Header]

INPUTS = ("images", "features", "tokens")
_PER_SAMPLE = ("labels", "clients", "test", "groups")
_OF_TOKENS = ("vocabulary", "padding")
_OF_TABLES = ("columns", "fill", "missing")
_KNOWN = (*INPUTS, *_PER_SAMPLE, "classes", *_OF_TABLES, *_OF_TOKENS, "public")
_SAVE_AGAIN = "save it again with numpy.savez_compressed(path, images=images, labels=labels)"
_BROKEN = ("is not a whole .npz file", _SAVE_AGAIN)


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the samples of a file; an `OwnedDataset` if the file has the array `clients`.

    The arrays of the file, with one row for each of N samples:
        images: uint8, N x H x W or N x H x W x C with 1 to 4 channels; or
        features: float16, float32 or float64, N x F, N x C x L or N x C x H x W, read as float32; or
        tokens: integers of any type, N x L, ids of a vocabulary from 0, read as int64.
        labels: N class numbers from 0, as integers or floats with integer values, which are not renumbered; or N names
            of classes as text, which are numbered `in_order`. Classes may have no samples.
        clients: optional: N integers or texts, the client that owns each sample.
        classes: optional: K texts, the names of the classes in the order of their numbers.
        columns: optional: F texts, the names of the features of vectors, for messages.
        fill: optional, with columns: F numbers, the value of each feature where it is missing, such as its median.
        missing: optional: texts for a missing value in the table of the features, besides those of every table.
        groups: optional: N integers or texts, such as patients; samples of a group stay on one side of every split.
        test: optional, only with clients: N booleans, or integers 0 and 1, whether each sample is a test sample.
        public: optional: see `included`.
        vocabulary: optional, only with tokens: V texts, the token of each id. Without it, V is the highest id plus 1.
        padding: optional, only with tokens: one integer, the id of the padding token for short texts.

    Raises:
        InputError: if the file cannot be read; if an array has an unknown name, which may be misspelled; or if an
            array has a wrong shape, type or value. Shapes and types are checked before arrays are read.
    """
    return read(_file(argument, folder))


def read(path: Path) -> LabeledDataset:
    """Return the samples of the file `path`, as `load` does."""
    return joined(path, [part(path)])


def unlabeled(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, Vocabulary | None]:
    """Return the images, features or tokens of a file without labels, and the vocabulary of tokens; None if no tokens.

    Raises InputError if the vocabulary is known and differs from that of the private tokens, `reading.known`, or if the
    names of features are known and differ from `reading.columns`.
    """
    path = _file(argument, folder)
    found = part(path, labeled=False)
    if reading.columns:
        check_columns(path, _columns(path), "the training data", reading.columns)
    private, own = reading.known, found.vocabulary
    if private and own and own.words and (own.words, own.padding) != (private.words, private.padding):
        raise InputError(
            f"{path} has another vocabulary or padding id than the private tokens: save tokens of one vocabulary."
        )
    return found.inputs, own


def included(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the array `public` of a file, which has no labels: images, features or tokens, (M, ...), as for `load`."""
    path = _file(argument, folder)
    with _opened(path) as archive:
        headers = _headers(archive, "public")
        kind = "tokens" if _headers(archive, "tokens") else "public"
        if not headers:
            raise InputError(
                f"{path} has no array 'public', which public.source: included needs: save the public inputs under that"
                " name, or choose another public.source, such as open_part."
            )
        _check_inputs(path, "public", *headers["public"], kind)
        return _inputs(path, "public", _arrays(path, archive, headers), kind)[0]


def part(path: Path, labeled: bool = True) -> Part:
    """Return the samples of the file `path`, as `load` describes them, or only its inputs."""
    with _opened(path) as archive:
        kind, headers = _checked(path, archive, labeled)
        arrays = _arrays(path, archive, headers)
    inputs, reach = _inputs(path, kind, arrays)
    names, fill = None, None
    if "columns" in arrays and inputs.shape[1:] == arrays["columns"].shape:
        names = tuple(map(str, arrays["columns"]))
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise InputError(f"{path} has {twice!r} twice in 'columns': each feature has a name of its own.")
        if "fill" in arrays and inputs.shape[1:] == arrays["fill"].shape:
            fill = as_float32(arrays["fill"][None], f"the array 'fill' in {path}")[0]
    if "test" in arrays and not np.isin(arrays["test"], (0, 1)).all():
        raise InputError(f"the array 'test' in {path} has values other than 0 and 1: save true or false per sample.")
    given = {name: arrays[name] for name in (*_PER_SAMPLE, "classes") if name in arrays}
    absent = tuple(map(str, arrays.get("missing", ())))
    known = _vocabulary(path, inputs, arrays) if kind == "tokens" else None
    return Part(
        path,
        inputs,
        given.pop("labels", ()),
        **given,
        vocabulary=known,
        columns=names,
        fill=fill,
        missing=absent,
        extent=reach,
    )


def _vocabulary(path: Path, ids: Tensor, arrays: dict[str, Any]) -> Vocabulary:
    """Return the vocabulary of tokens after checking their ids."""
    words = tuple(map(str, arrays["vocabulary"])) if "vocabulary" in arrays else None
    padding = int(arrays["padding"]) if "padding" in arrays else None
    if words is not None and len(set(words)) < len(words):
        word = Counter(words).most_common(1)[0][0]
        raise InputError(f"{path} has {word!r} twice in 'vocabulary': each id has a token of its own.")
    made = vocabulary_of(ids, f"the array 'tokens' in {path}", len(words) if words else None, padding)
    return replace(made, words=words)


def columns(argument: str, folder: Path) -> tuple[str, ...] | None:
    """Return the names of the features of vectors in a file; None if it has none."""
    return _columns(_file(argument, folder))


def _columns(path: Path) -> tuple[str, ...] | None:
    found = _named(path, "columns")
    return tuple(map(str, found["columns"])) if found else None


def names(argument: str, folder: Path) -> list[str]:
    with _opened(_file(argument, folder)) as archive:
        return _names(archive)


def encoding(path: Path) -> dict[str, Any]:
    """Return the arrays of `_OF_TABLES` and `classes`; the last two of them need not exist."""
    found = _named(path, *_OF_TABLES, "classes")
    if lacking := [name for name in ("columns", "fill") if name not in found]:
        raise InputError(f"{path} has no array {lacking[0]!r}: name a file that `ktpfl convert csv` wrote.")
    return found


def _named(path: Path, *names: str) -> dict[str, Any]:
    with _opened(path) as archive:
        return _arrays(path, archive, _headers(archive, *names))


def claim(path: Path) -> int:
    """Return the number of bytes of memory that `read` needs, after checking the headers of the file."""
    with _opened(path) as archive:
        return _claimed(_checked(path, archive, labeled=True)[1])


def _file(argument: str, folder: Path) -> Path:
    return file_in("npz", argument, folder, "yourfile.npz")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with readable(path, *_BROKEN), zipfile.ZipFile(path) as archive:
        yield archive


def _arrays(path: Path, archive: zipfile.ZipFile, headers: Headers) -> dict[str, Any]:
    """Read the arrays with these headers; bytes become UTF-8 texts. Raises InputError if they need too much memory."""
    check_claim(path, _claimed(headers), "save fewer or smaller samples")
    found = {}
    for name in headers:
        with archive.open(f"{name}.npy") as file:
            array = np.lib.format.read_array(file)
        found[name] = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    return found


def _headers(archive: zipfile.ZipFile, *names: str) -> Headers:
    """Return {array: (shape, dtype)} from the headers of those `names` that are in the file. No array is read."""
    there = archive.namelist()
    return {name: _header(archive, f"{name}.npy") for name in names if f"{name}.npy" in there}


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _header(archive: zipfile.ZipFile, member: str) -> Header:
    with archive.open(member) as file:
        shape, dtype = read_header(file)
        claimed = math.prod(shape) * dtype.itemsize
        given = archive.getinfo(member).file_size - file.tell()
        if claimed <= MAX_BYTES and not dtype.hasobject and given < claimed:
            raise ValueError(f"{member} is cut short")
    return shape, dtype


def read_header(file: IO[bytes]) -> Header:
    """Return shape and dtype of the array in an open `.npy` file, whose position is then the start of the values.

    Raises ValueError if the header is invalid.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _checked(path: Path, archive: zipfile.ZipFile, labeled: bool) -> tuple[str, Headers]:
    """Return the name of the inputs in a file, one of `INPUTS`, and the headers. Raises InputError if one is wrong."""
    headers = _headers(archive, *INPUTS, *_OF_TOKENS, *((*_PER_SAMPLE, "classes", *_OF_TABLES) if labeled else ()))
    found = [name for name in INPUTS if name in headers]
    if len(found) > 1:
        raise InputError(f"{path} has the array {found[0]!r} and the array {found[1]!r}: save only one of them.")
    if not found or (labeled and "labels" not in headers):
        missing = "'labels'" if found else "'images', 'features' or 'tokens'"
        others = ", ".join(_names(archive)) or "none at all"
        raise InputError(f"{path} has no array {missing}, only {others}: {_SAVE_AGAIN}.")
    for name in _names(archive):
        if name not in _KNOWN:
            raise InputError(
                f"{path} has an array {name!r}, which is not known{meant(name, _KNOWN)}: the names are"
                f" {', '.join(_KNOWN)}; save it under one of them, or leave it out."
            )
    _check_inputs(path, found[0], *headers[found[0]], found[0])
    _check_others(path, found[0], headers)
    return found[0], headers


class _Form(NamedTuple):
    """The requirements for an array other than the inputs, and advice for messages."""

    kinds: str  # the allowed dtype kinds, as in ``numpy.dtype.kind``
    what: str  # the required type and shape
    save: str  # what to save instead of other content
    plain: str  # what to save instead of Python objects


_NAMES = "integers or text of shape (N,)"
_FORMS = {
    "labels": _Form(
        "iufUS",
        _NAMES,
        "one class number per sample",
        "class numbers, with .astype('int64'), or names of classes, with .astype(str)",
    ),
    "clients": _Form("iuUS", _NAMES, "one client per sample", "text, with .astype(str), or .astype('int64')"),
    "test": _Form("biu", "true or false of shape (N,)", "one such value per sample", "it with .astype(bool)"),
    "classes": _Form(
        "US",
        "text of shape (K,)",
        "the names of the classes, in the order of their numbers",
        "the names as text, with .astype(str)",
    ),
    "groups": _Form("iuUS", _NAMES, "one group per sample", "text, with .astype(str)"),
    "columns": _Form("US", "text of shape (F,)", "the names of the features", "the names as text, with .astype(str)"),
    "fill": _Form("f", "floats of shape (F,)", "one value per feature", "numbers, with .astype('float32')"),
    "vocabulary": _Form(
        "US", "text of shape (V,)", "the token of each id, in the order of the ids", "text, with .astype(str)"
    ),
    "missing": _Form("US", "text of shape (n,)", "the strings that mean no value", "text, with .astype(str)"),
    "padding": _Form("iu", "one integer", "the id that fills short texts", "one integer"),
}


def _check_others(path: Path, kind: str, headers: Headers) -> None:
    """Check the headers of the arrays other than the inputs. `kind` is the name of the inputs' array."""
    if "test" in headers and "clients" not in headers:
        raise InputError(
            f"{path} has an array 'test' but no array 'clients'. Add 'clients' with the owner of each sample, or leave"
            " 'test' out."
        )
    for name, form in _FORMS.items():
        if name not in headers:
            continue
        if name in _OF_TOKENS and kind != "tokens":
            raise InputError(
                f"{path} has an array {name!r}, which belongs to tokens, but it has {kind}: leave the array out."
            )
        shape, dtype = headers[name]
        _check_plain(path, name, dtype, form.plain)
        fits = math.prod(shape) == 1 if name == "padding" else len(shape) == 1 and dtype.itemsize and shape != (0,)
        if dtype.kind not in form.kinds or not fits:
            raise InputError(
                f"the array {name!r} in {path} is {dtype} of shape {shape} and must be {form.what}: save {form.save}."
            )
        if name in _PER_SAMPLE and shape[0] != (number := headers[kind][0][0]):
            raise InputError(f"{path} has {number:,} {kind} and {shape[0]:,} {name}: save as many {name} as {kind}.")
        if name in ("columns", "fill") and len(headers[kind][0]) == 2 and shape != (wanted := headers[kind][0][1:]):
            raise InputError(
                f"{path} has {plural(wanted[0], 'feature')} per sample and {shape[0]:,} values in {name!r}: save one"
                " per feature."
            )
        if name == "vocabulary" and not 2 <= shape[0] <= MAX_VOCABULARY:
            raise InputError(
                f"the array 'vocabulary' in {path} has {plural(shape[0], 'token')}, and 2 to {MAX_VOCABULARY:,} are"
                " possible: save a vocabulary of that size."
            )
    if "classes" in headers and headers["labels"][1].kind in "US":
        raise InputError(
            f"{path} has labels in text, which are names already, and an array 'classes': leave 'classes' out, or save"
            " class numbers."
        )


def _check_plain(path: Path, name: str, dtype: "np.dtype[Any]", plain: str) -> None:
    if dtype.hasobject:
        raise InputError(
            f"the array {name!r} in {path} holds Python objects, which could run code when read: save {plain}."
        )


def _check_inputs(path: Path, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]", kind: str) -> None:
    """Check the header of inputs: tokens if `kind` is ``tokens``; else features if floats; else images."""
    where = f"the array {name!r} in {path}"
    _check_plain(path, name, dtype, "plain numbers, all samples of one size")
    if kind == "tokens":
        if dtype.kind not in "iu":
            fix = "texts are read from a CSV table with text:<file>" if dtype.kind in "US" else "save .astype('int64')"
            raise InputError(f"{where} is {dtype} and must be ids in integers, uint8 to int64: {fix}.")
        if len(shape) != 2:
            raise InputError(
                f"{where} has shape {shape} and must have N x L, texts of one length: cut longer ones, and fill shorter"
                " ones up with a padding id."
            )
    elif name == "features" or (name == "public" and dtype.kind == "f"):
        if dtype.kind != "f" or dtype.itemsize > 8:
            raise InputError(f"{where} is {dtype} and must be float16, float32 or float64: save .astype('float32').")
        if not 2 <= len(shape) <= 4:
            raise InputError(f"{where} has shape {shape} and must have N x F, N x C x L or N x C x H x W: reshape it.")
    else:
        if dtype != np.uint8:
            unit = "(images * 255).round().astype('uint8') if they lie between 0 and 1, or call the array 'features'"
            scaled = "(images * (255 / images.max())).round().astype('uint8'), or uint8 if none is above 255"
            fix = {"f": unit, "i": scaled, "u": scaled}.get(dtype.kind, "uint8")
            raise InputError(f"{where} is {dtype} and must be uint8, 0 to 255: save {fix}.")
        if len(shape) not in (3, 4) or (len(shape) == 4 and not 1 <= shape[3] <= 4 and min(shape) > 0):
            fix = "images.transpose(0, 2, 3, 1)" if len(shape) == 4 and 1 <= shape[1] <= 4 else "them in one of these"
            raise InputError(
                f"{where} has shape {shape} and must have N x H x W, or N x H x W x C with 1 to 4 channels: save {fix}."
            )
    if min(shape) < 1:
        raise InputError(f"{where} is empty (shape {shape}): save one sample or more.")


def _claimed(headers: Headers) -> int:
    """Return the bytes of all arrays as read, plus those of their conversions to float32 and int64."""
    as_they_are = sum(math.prod(shape) * dtype.itemsize for shape, dtype in headers.values())
    become = sum(4 * math.prod(shape) for shape, dtype in headers.values() if dtype.kind == "f" and dtype.itemsize != 4)
    become += 8 * math.prod(headers["tokens"][0] if "tokens" in headers else (0,))
    return as_they_are + become + sum(8 * headers[name][0][0] for name in _PER_SAMPLE[:2] if name in headers)


def _inputs(path: Path, name: str, arrays: dict[str, Any], kind: str = "") -> tuple[Tensor, Extent | None]:
    """Return images as (N, C, H, W) uint8, finite features in float32, or tokens in int64 if `kind` is ``tokens``.

    The second value is the extent of features. The array is removed from `arrays`.
    """
    array = arrays.pop(name)
    if "tokens" in (name, kind):
        if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
            raise InputError(f"the array {name!r} in {path} has the id {array.max():,}: number the tokens from 0.")
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)), None
    if array.dtype == np.uint8:
        images = torch.from_numpy(array if array.ndim == 4 else array[..., None])
        return images.permute(0, 3, 1, 2).contiguous(), None
    return as_float32(array, f"the array {name!r} in {path}"), extent(array)
