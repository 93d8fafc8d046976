"""Datasets of torchvision, which are downloaded once. A failed download leaves no incomplete files."""

import math
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.data.sources.files import brief, check_no_argument
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading

EMNIST_SPLITS = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
EMNIST_LETTERS = 26  # torchvision has a further class 0, "N/A"
_SILENCE_SECONDS = 60.0  # torchvision sets no timeout; a firewall that drops packets would block the run


class DownloadError(InputError):
    """A dataset could not be downloaded."""


def load(dataset: str, argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the training and test samples of a torchvision dataset; `dataset` is the name of its class there.

    EMNIST is returned upright and with labels from 0. Its argument names the split; the default is `letters`, whose
    classes 0 to 9 are the letters A to J. KT-pFL section 5.1 uses ten classes of EMNIST and does not say which; we use
    these.
    """
    if dataset != "EMNIST":
        check_no_argument(argument)
        return _both_parts(dataset, folder)
    split = argument or "letters"
    if split not in EMNIST_SPLITS:
        raise unknown("the split of emnist:<split>", split, EMNIST_SPLITS)
    samples = _both_parts(dataset, folder, split=split)
    upright = samples.inputs.transpose(2, 3).contiguous()  # the files store the images transposed
    labels = samples.labels - 1 if split == "letters" else samples.labels  # A is 1 in the files
    if labels.min() < 0:
        raise InputError(f"emnist:letters in {folder} has a label 0, and A is 1: delete its files to fetch them again.")
    names = samples.class_names and samples.class_names[len(samples.class_names) - EMNIST_LETTERS :]
    return LabeledDataset(upright, labels, class_names=names if split == "letters" else samples.class_names)


def _both_parts(dataset: str, folder: Path, **options: str) -> LabeledDataset:
    """Return the training and the test samples of a torchvision dataset together, because each client splits again.

    Files in `folder` are used. Missing or unreadable files are unpacked from an archive in `folder`, or downloaded.
    """
    import torchvision

    kind = getattr(torchvision.datasets, dataset)
    damaged = [str(path) for path in _idx_files(kind, folder, **options) if path.is_file() and not _whole_idx(path)]
    try:
        parts = [] if damaged else _read(kind, folder, download=False, **options)
    except (OSError, RuntimeError, ValueError, AssertionError, KeyError, EOFError):  # absent, or cut short
        parts = []
    parts = parts or _fetch(kind, folder, damaged, **options)
    images, labels = ([torch.as_tensor(getattr(part, name)) for part in parts] for name in ("data", "targets"))
    if [len(part) for part in images] != [len(part) for part in labels] or images[0].shape[1:] != images[1].shape[1:]:
        raise InputError(
            f"The files of {dataset} in {folder} do not go together (images {[tuple(part.shape) for part in images]},"
            f" labels {[tuple(part.shape) for part in labels]}): delete them to download them again."
        )
    both = torch.cat(images)
    both = both.unsqueeze(1) if both.ndim == 3 else both.permute(0, 3, 1, 2)
    names = tuple(str(name).partition(" - ")[0] for name in parts[0].classes)  # MNIST's are "0 - zero", "1 - one", ...
    return LabeledDataset(both.contiguous(), torch.cat(labels).long(), class_names=names)


def _read(kind: Any, root: Path, **options: Any) -> list[Any]:
    return [kind(root, train=train, **options) for train in (True, False)]


def _idx_files(kind: Any, folder: Path, split: str = "") -> list[Path]:
    """Return the paths of the unpacked files of MNIST, Fashion-MNIST or EMNIST; empty for CIFAR."""
    if hasattr(kind, "tgz_md5"):  # torchvision checks the MD5 sums of these files
        return []
    stems = [f"emnist-{split}-train", f"emnist-{split}-test"] if split else ["train", "t10k"]
    place = folder / _archives(kind)[0]
    return [place / f"{stem}-{end}" for stem in stems for end in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def _whole_idx(path: Path) -> bool:
    """Return whether a file has the size that its header claims. Raises InputError if it is too large to be read."""
    dimensions = 3 if "idx3" in path.name else 1
    try:
        with path.open("rb") as file:
            head = file.read(4 + 4 * dimensions)
    except OSError:
        return False
    values = math.prod(int.from_bytes(head[at : at + 4], "big") for at in range(4, len(head), 4))
    if head[:4] != bytes([0, 0, 8, dimensions]) or path.stat().st_size != 4 + 4 * dimensions + values or not values:
        return False
    check_claim(path, values, "replace it with the original file")
    return True


def _fetch(kind: Any, folder: Path, unusable: list[str], **options: str) -> list[Any]:
    """Download a dataset into `folder`, and return its two parts. Only complete files are ever in `folder`.

    torchvision does not check whether an unpacked MNIST file is complete. The download and unpacking are therefore done
    in a temporary folder, whose files are moved to `folder` after both parts were read.
    """
    from torchvision.datasets.utils import check_integrity

    place, archives = _archives(kind)
    given = {name: folder / place / name for name in archives if (folder / place / name).is_file()}
    damaged = [str(path) for name, path in given.items() if not check_integrity(path, archives[name])]
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as beside:
            stage = Path(beside)
            (stage / place).mkdir(parents=True, exist_ok=True)
            for path in given.values():
                if str(path) not in damaged:
                    shutil.copyfile(path, stage / place / path.name)
            parts = _read(kind, stage, download=True, **options)
            for path in [path for path in stage.rglob("*") if path.is_file()]:
                target = folder / path.relative_to(stage)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
    except (OSError, RuntimeError, HTTPException) as error:
        wrong = {"incomplete (wrong MD5 sum)": damaged, "not as long as its header says": unusable}
        found = [f"{', '.join(paths)} is {what}: replace it. " for what, paths in wrong.items() if paths]
        raise DownloadError(
            f"{''.join(found)}{kind.__name__} could not be downloaded into {folder} ({brief(error)}): put"
            f" {_addresses(kind, archives)} into {folder / place}, or choose a source that needs no network,"
            " `source: digits` or `source: npz:yourfile.npz`."
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
    return parts


def missing(dataset: str, folder: Path) -> str:
    """Return, as text, the archives of a dataset and their folder; empty if they, or unpacked files, are there."""
    import torchvision

    kind = getattr(torchvision.datasets, dataset)
    place, archives = _archives(kind)
    content = (folder / kind.base_folder).glob("*") if not place else (folder / place).glob("*-ubyte")
    if any(content) or all((folder / place / name).is_file() for name in archives):
        return ""
    return f"{_addresses(kind, archives)} into {folder / place}"


def _addresses(kind: Any, archives: Iterable[str]) -> str:
    mirrored = hasattr(kind, "mirrors")  # MNIST, Fashion-MNIST
    return ", ".join(f"{name} ({kind.mirrors[0] + name if mirrored else kind.url})" for name in archives)


def _archives(kind: Any) -> tuple[str, dict[str, str]]:
    """Return torchvision's folder for the archives of a dataset, relative to the root, and {file name: MD5 sum}."""
    if hasattr(kind, "tgz_md5"):  # CIFAR
        return "", {kind.filename: kind.tgz_md5}
    place = f"{kind.__name__}/raw"
    if hasattr(kind, "md5"):  # EMNIST: one archive for all its splits
        return place, {kind.url.rpartition("/")[2]: kind.md5}
    return place, dict(kind.resources)  # MNIST, Fashion-MNIST
