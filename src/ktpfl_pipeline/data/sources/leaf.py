"""The source `leaf`: JSON files with users and their samples (Caldas et al., "LEAF", 2018, arXiv:1812.01097).

Every file has `users`, a list of names; `num_samples`, the list of their numbers of samples; and `user_data`,
``{user: {"x": [[0.1, ...], ...], "y": [3, ...]}}``. In Shakespeare, each input is a string of 80 characters, and its
label is the next character. In Sent140, each input is a list of strings, of which the last is the text.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.data.owned import client_names, composed
from ktpfl_pipeline.data.sources.files import MAX_CLASSES, brief, files_in, no_such, path_in, readable, subfolders
from ktpfl_pipeline.data.sources.parts import NUMBER, Extent, Part, as_float32, class_numbers, extent, joined, numbered
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.tokens import CHARACTERS, WORDS, tokenized

PARSED = 24  # bytes of memory per byte of JSON, at most: "[]," is a list of 56 bytes and a pointer to it


class _Share(NamedTuple):
    """One user's samples in one file.

    Attributes:
        x: (n, ...) float32, or a list of n strings.
        y: (n,) int64 array, or a list of n characters.
        extent: the range of features; None for strings.
    """

    x: Any
    y: Any
    extent: Extent | None = None


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the samples of all users, sorted by name: features in float32, in the shape of `x`, or tokens.

    The argument is a file, a folder of ``.json`` files, or a folder with two such folders, `train` and `test`. Samples
    in `test` are marked as test samples. Raises InputError if a file is not in the format of LEAF, or its samples
    cannot be used.
    """
    path = path_in("leaf", argument, folder, "yourfolder")
    read = partial(_joined, path, reading=reading, folder=folder)
    if os.path.isfile(path):
        return read(_users([path], path.parent), {})
    if not os.path.isdir(path):
        raise no_such("folder", path, folder)
    parts = {place.name: place for place in subfolders(path, path) if place.name in ("train", "test")}
    if not parts:
        return read(_users(_files(path, path), path), {})
    if len(parts) == 1:
        raise InputError(
            f"{path} has only one of the folders 'train' and 'test': add the other, or name {path / next(iter(parts))}."
        )
    train, test = (_users(_files(parts[part], path), path) for part in ("train", "test"))
    if lost := sorted(train.keys() ^ test.keys()):
        raise InputError(
            f"{path} has user {lost[0]!r} in only one of train and test: split each user's samples (LEAF's -t sample),"
            " not the users."
        )
    return read(train, test)


def _files(place: Path, root: Path) -> list[Path]:
    if not (files := files_in(place, root, (".json",))):
        raise InputError(f"{place} has no .json files: correct the path, or name the folder that has them.")
    return files


def _users(files: list[Path], root: Path) -> dict[str, _Share]:
    check_claim(root, sum(file.stat().st_size for file in files) * 4, "take fewer users")  # "0.1," becomes 4 bytes
    found: dict[str, _Share] = {}
    for file in files:
        check_claim(file, file.stat().st_size * PARSED, "split it into several files, which are read one by one")
        with readable(file):
            content = json.loads(file.read_bytes())
        for user, share in _content(file, content).items():
            if user in found:
                raise InputError(
                    f"{file} has user {user!r}, but another file has this user too: put each user's samples into one "
                    "file."
                )
            found[user] = share
    return found


def _content(file: Path, content: Any) -> dict[str, _Share]:
    """Return the samples of each user in one file. Raises InputError if its content is not in the format of LEAF."""
    parts = content if isinstance(content, dict) else {}
    users, data, numbers = parts.get("users"), parts.get("user_data"), parts.get("num_samples")
    if not isinstance(users, list) or not users or not isinstance(data, dict) or {*map(type, users)} != {str}:
        raise InputError(
            f"{file} is not a LEAF file: it must have a list 'users' of names, and 'user_data' for each user."
        )
    users, data = client_names(users, file), {composed(user): share for user, share in data.items()}
    if len(set(users)) < len(users) or set(data) != set(users):
        raise InputError(
            f"{file} does not name the same users in 'users' and 'user_data', or names a user twice: name each user "
            "once."
        )
    shares = {user: _share(f"user {user!r} of {file}", data[user]) for user in users}
    if numbers is not None and numbers != [len(share.y) for share in shares.values()]:
        raise InputError(f"{file} has 'num_samples' that differ from the numbers of labels: generate the file again.")
    return shares


def _share(where: str, data: Any) -> _Share:
    x, y = (data.get(name) if isinstance(data, dict) else None for name in "xy")
    if not isinstance(x, list) or not isinstance(y, list) or not x:
        raise InputError(f"{where} has no samples: give lists 'x' and 'y', or leave the user out.")
    if len(x) != len(y):
        raise InputError(
            f"{where} has {plural(len(x), 'input')} and {plural(len(y), 'label')}: give one label per input."
        )
    if any(isinstance(each, list) and len(each) > 1 and all(map(_is_number, each)) for each in x):
        raise InputError(f"{where} has an 'x' with numbers in quotes: write them without quotes.")
    x = [each[-1] if isinstance(each, list) and each and isinstance(each[-1], str) else each for each in x]
    if texts := [each for each in x if isinstance(each, str)]:
        if (number := next((n for n, each in enumerate(x) if not isinstance(each, str) or not each), None)) is not None:
            raise InputError(
                f"{where} has {str(x[number])[:40]!r} as text {number + 1}: give each sample a text, or leave the "
                "sample out."
            )
        characters = all(isinstance(label, str) and len(label) == 1 for label in y)
        return _Share(texts, y if characters else _numbers(where, y, ", or the next character of a text"))
    try:
        inputs = np.array(x, dtype=np.float64)  # without a dtype, strings would use the memory of the longest
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{where} has an 'x' that is neither a list of numbers per sample, all of one length, nor a text"
            f" ({brief(error)}): give numbers or texts; names of files are not supported."
        ) from error
    if not 2 <= inputs.ndim <= 4 or not inputs.size:
        raise InputError(
            f"{where} has an 'x' of shape {inputs.shape}: give a list of numbers per sample, N x F or more."
        )
    return _Share(as_float32(inputs, where), _numbers(where, y), extent(inputs))


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and NUMBER.fullmatch(value) is not None


def _numbers(where: str, y: list[Any], other: str = "") -> Any:
    """Return labels as class numbers, (n,) int64. `other` describes further allowed labels in the message."""
    if wrong := [label for label in y if type(label) not in (int, float) or abs(label) >= MAX_CLASSES]:
        raise InputError(
            f"{where} has the label {str(wrong[0])[:40]!r}: labels are class numbers from 0 to {MAX_CLASSES - 1}"
            f"{other}."
        )
    return class_numbers(np.array(y), where)


def _joined(
    path: Path, train: dict[str, _Share], test: dict[str, _Share], reading: Reading, folder: Path
) -> LabeledDataset:
    """Return the samples of all users. The test samples of a user follow the user's other samples."""
    names = sorted(train)
    keys = [(client, flag) for client in range(len(names)) for flag in ((False, True) if test else (False,))]
    shares = [(test if flag else train)[names[client]] for client, flag in keys]
    for form, place in (("texts", 0), ("characters", 1)):
        has = [isinstance(share[place], list) for share in shares]
        if any(has) and not all(has):
            odd = names[keys[has.index(False)][0]]
            raise InputError(
                f"{path} has {form} for some users, but not for user {odd!r}: give all users the same form."
            )
    sizes, classes, known = [len(share.y) for share in shares], None, None
    inputs, labels = [share.x for share in shares], [share.y for share in shares]
    if isinstance(labels[0], list):
        found, numbers = numbered([label for own in labels for label in own])
        classes = [label if label.isprintable() else repr(label)[1:-1] for label in found]
        labels = [own.numpy() for own in numbers.split_with_sizes(sizes)]
    if isinstance(inputs[0], list):
        texts = [text for own in inputs for text in own]
        ids, known = tokenized(texts, reading, str(path), folder, auto=WORDS if classes is None else CHARACTERS)
        inputs = [*ids.split_with_sizes(sizes)]
    parts = [
        Part(
            f"user {names[client]!r} of {path}",
            own,
            labels=label,
            clients=np.full(len(label), client),
            test=np.full(len(label), flag) if test else None,
            classes=classes,
            vocabulary=known,
            extent=share.extent,
        )
        for (client, flag), own, label, share in zip(keys, inputs, labels, shares, strict=True)
    ]
    return joined(path, parts, tuple(names))
