"""LEAF's JSON files: users, and the samples of each (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018).

Every file has `users`, a list of names, `num_samples`, a list of how many each has, and `user_data`,
``{user: {"x": [[0.1, ...], ...], "y": [3, ...]}}``. Shakespeare has a string of 80 characters as each `x`, and the next
character as its `y`; Sent140 has a list of strings as each `x`, of which the last one is the text.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset, client_names
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources.arguments import no_such, path_in
from ktpfl_pipeline.data.sources.folder import files_in, subfolders
from ktpfl_pipeline.data.sources.labels import class_numbers
from ktpfl_pipeline.data.sources.limits import MAX_CLASSES, brief, check_claim, readable
from ktpfl_pipeline.data.sources.npz import check_finite
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.tokens import CHARACTERS, WORDS, tokenized

PARSED = 24  # bytes of memory that one byte of JSON may take: "[]," is a list of 56 bytes and its place in another


class _Share(NamedTuple):
    """One user's samples in one file: x (n, ...) float32 or n texts, y (n,) int64 or n characters."""

    x: Any
    y: Any


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> OwnedDataset:
    """Return the samples of all users, sorted by name: features in float32 of the shape that `x` has, or tokens.

    Args:
        argument: a file; a folder of ``.json`` files; or one with such folders `train` and `test`, where each user is
            tested on what `test` has.
        folder: where relative paths start.
        reading: how texts become tokens, in `Reading.text`.
    """
    path = path_in("leaf", argument, folder, "leaf:yourfolder")
    read = partial(_joined, path, how=reading.text, folder=folder)
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
    """Return the samples of each user in all files."""
    check_claim(root, sum(file.stat().st_size for file in files) * 4, "take fewer users")  # "0.1," becomes 4 bytes
    found: dict[str, _Share] = {}
    for file in files:
        check_claim(file, file.stat().st_size * PARSED, "split it into several files, which are read one by one")
        with readable(file):
            content = json.loads(file.read_bytes())
        for user, share in _content(file, content).items():
            if user in found:
                raise InputError(
                    f"{file} has user {user!r}, as another file has: give each user's samples in one file."
                )
            found[user] = share
    return found


def _content(file: Path, content: Any) -> dict[str, _Share]:
    """Return the samples of each user in one file, having checked that the file is what LEAF writes."""
    parts = content if isinstance(content, dict) else {}
    users, data, numbers = parts.get("users"), parts.get("user_data"), parts.get("num_samples")
    if not isinstance(users, list) or not users or not isinstance(data, dict) or {*map(type, users)} != {str}:
        raise InputError(f"{file} is not a LEAF file: it must have a list 'users' of names, and 'user_data' of each.")
    client_names(users, file)
    if len(set(users)) < len(users) or set(data) != set(users):
        raise InputError(f"{file} names other users in 'users' than in 'user_data', or one twice: name each once.")
    shares = {user: _share(f"user {user!r} of {file}", data[user]) for user in users}
    if numbers is not None and numbers != [len(share.y) for share in shares.values()]:
        raise InputError(
            f"{file} has other 'num_samples' than users have labels: it is cut or mixed up; generate it again."
        )
    return shares


def _share(where: str, data: Any) -> _Share:
    """Return one user's samples."""
    x, y = (data.get(name) if isinstance(data, dict) else None for name in "xy")
    if not isinstance(x, list) or not isinstance(y, list) or not x:
        raise InputError(f"{where} has no samples: give lists 'x' and 'y', or leave the user out.")
    if len(x) != len(y):
        raise InputError(f"{where} has {len(x):,} inputs and {len(y):,} labels: give one label per input.")
    if any(isinstance(each[-1] if isinstance(each, list) and each else each, str) for each in x):
        return _Share(_texts(where, x), _text_labels(where, y))
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and an error below
            inputs = np.array(x, dtype=np.float32)  # with a type, for texts would be given the room of the longest
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{where} has an 'x' that is neither a list of numbers per sample, all of one length, nor a text"
            f" ({brief(error)}): names of files cannot be read; give numbers or texts."
        ) from error
    if not 2 <= inputs.ndim <= 4 or not inputs.size:
        raise InputError(
            f"{where} has an 'x' of shape {inputs.shape}: give a list of numbers per sample, N x F or more."
        )
    check_finite(torch.from_numpy(inputs), where)
    if wrong := [label for label in y if type(label) not in (int, float) or abs(label) >= MAX_CLASSES]:
        raise InputError(
            f"{where} has the label {str(wrong[0])[:40]!r}: labels are class numbers from 0 to {MAX_CLASSES - 1}."
        )
    return _Share(inputs, class_numbers(np.array(y), where))


def _texts(where: str, x: list[Any]) -> list[str]:
    """Return the text of each sample: the sample itself, or the last of the strings that it has."""
    found = [each[-1] if isinstance(each, list) and each else each for each in x]
    for number, each in enumerate(found):
        if not isinstance(each, str) or not each:
            raise InputError(
                f"{where} has {str(each)[:40]!r} as text {number + 1}: give each sample a text, or leave it out."
            )
    return found


def _text_labels(where: str, y: list[Any]) -> Any:
    """Return class numbers, (n,) int64, or the labels where all are single characters that are not digits."""
    if all(isinstance(label, str) and len(label) == 1 for label in y):
        return y
    if wrong := [label for label in y if type(label) not in (int, float) or abs(label) >= MAX_CLASSES]:
        raise InputError(
            f"{where} has the label {str(wrong[0])[:40]!r}: labels of texts are class numbers from 0 to"
            f" {MAX_CLASSES - 1}, or the next character."
        )
    return class_numbers(np.array(y), where)


def _joined(path: Path, train: dict[str, _Share], test: dict[str, _Share], how: Text, folder: Path) -> OwnedDataset:
    """Return the samples of all users, those to test on after each one's others."""
    names = sorted(train)
    users = [name for name in names for part in (train, test) if part]
    shares = [part[name] for name in names for part in (train, test) if part]
    sizes, parts = torch.tensor([len(share.y) for share in shares]), 2 if test else 1
    flags = torch.tensor([False, True]).repeat(len(names)).repeat_interleave(sizes) if test else None
    owners = torch.arange(len(names)).repeat_interleave(parts).repeat_interleave(sizes)
    for form, has in (("texts", lambda share: isinstance(share.x, list)), ("characters", _has_characters)):
        if len({has(share) for share in shares}) > 1:
            odd = next(user for user, share in zip(users, shares, strict=True) if not has(share))
            raise InputError(f"{path} has {form} for some users, but not for user {odd!r}: give all the same form.")
    if isinstance(shares[0].x, list):
        return _of_texts(path, shares, owners, tuple(names), flags, how, folder)
    for user, share in zip(users, shares, strict=True):
        if share.x.shape[1:] != shares[0].x.shape[1:]:
            raise InputError(
                f"{path} has inputs of shape {shares[0].x.shape[1:]} and, of user {user!r}, of {share.x.shape[1:]}:"
                " give all one shape."
            )
    inputs, labels = (torch.from_numpy(np.concatenate([share[i] for share in shares])) for i in (0, 1))
    return OwnedDataset(inputs, labels, owners, tuple(names), test=flags)


def _has_characters(share: _Share) -> bool:
    return isinstance(share.y, list)


def _of_texts(
    path: Path,
    shares: list[_Share],
    owners: Tensor,
    names: tuple[str, ...],
    test: Tensor | None,
    how: Text,
    folder: Path,
) -> OwnedDataset:
    """Return texts as tokens, each with its class number, or with the number of its next character."""
    called = None
    if _has_characters(shares[0]):
        found, numbers = np.unique([label for share in shares for label in share.y], return_inverse=True)
        called = tuple(label if label.isprintable() else repr(label)[1:-1] for label in map(str, found))
        labels = torch.from_numpy(numbers.astype(np.int64))
    else:
        labels = torch.from_numpy(np.concatenate([share.y for share in shares]))
    texts = [text for share in shares for text in share.x]
    ids, known = tokenized(texts, how, str(path), folder, auto=WORDS if called is None else CHARACTERS)
    return OwnedDataset(ids, labels, owners, names, test=test, class_names=called, vocabulary=known)
