"""torchvision's datasets: downloaded once, whole files or none."""

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
from ktpfl_pipeline.data.sources.arguments import check_no_argument
from ktpfl_pipeline.data.sources.limits import brief

EMNIST_SPLITS = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
EMNIST_LETTERS = 26  # torchvision names a class 0 before them, "N/A"
_SILENCE_SECONDS = 60.0  # torchvision sets no timeout, and a firewall that drops packets would hang the run


class DownloadError(InputError):
    """A dataset could not be downloaded."""


def load(dataset: str, argument: str, folder: Path) -> LabeledDataset:
    """Return a dataset of torchvision, where its class is called `dataset`."""
    check_no_argument(argument)
    return _both_parts(dataset, folder)


def load_emnist(argument: str, folder: Path) -> LabeledDataset:
    """Return one split of EMNIST, upright and with labels from 0.

    The split is `letters` unless the argument names another: with ``classes: 0..9`` these are the letters A to J, the
    ten classes of the paper (KT-pFL section 5.1 says "EMNIST" and ten classes, not which).
    """
    split = argument or "letters"
    if split not in EMNIST_SPLITS:
        raise unknown("the split of emnist:<split>", split, EMNIST_SPLITS)
    samples = _both_parts("EMNIST", folder, split=split)
    upright = samples.inputs.transpose(2, 3).contiguous()  # the files hold every image column by column
    labels = samples.labels - 1 if split == "letters" else samples.labels  # A is 1 in the files
    if labels.min() < 0:
        raise InputError(f"emnist:letters in {folder} has a label 0, and A is 1: delete its files to fetch them again.")
    names = samples.class_names and samples.class_names[len(samples.class_names) - EMNIST_LETTERS :]
    return LabeledDataset(upright, labels, class_names=names if split == "letters" else samples.class_names)


def _both_parts(dataset: str, folder: Path, **options: str) -> LabeledDataset:
    """Return the train and the test part of a torchvision dataset together: each client splits its share again.

    What is in `folder` is used; what is missing or cannot be read is downloaded, or unpacked from an archive there.
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
    """Return the unpacked files of MNIST and its like that torchvision would read whole; none of CIFAR."""
    if hasattr(kind, "tgz_md5"):  # its files are read only if their MD5 sums are those of the real ones
        return []
    stems = [f"emnist-{split}-train", f"emnist-{split}-test"] if split else ["train", "t10k"]
    place = folder / _archives(kind)[0]
    return [place / f"{stem}-{end}" for stem in stems for end in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def _whole_idx(path: Path) -> bool:
    """Return whether a file holds the images or labels that its header claims; refuse one too large to be read."""
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
    """Return the parts of a dataset after downloading it into `folder`, where only whole files ever appear.

    torchvision takes an unpacked MNIST file for whole because it exists. So everything happens in a folder next to it,
    and moves over, file by file, once both parts have been read.
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
    """Return which archives of a dataset belong where; empty if they are in `folder`, or their content is."""
    import torchvision

    kind = getattr(torchvision.datasets, dataset)
    place, archives = _archives(kind)
    content = (folder / kind.base_folder).glob("*") if not place else (folder / place).glob("*-ubyte")
    if any(content) or all((folder / place / name).is_file() for name in archives):
        return ""
    return f"{_addresses(kind, archives)} into {folder / place}"


def _addresses(kind: Any, archives: Iterable[str]) -> str:
    """Return the names of a dataset's archives, each with the address that it can be fetched from."""
    mirrored = hasattr(kind, "mirrors")  # MNIST, Fashion-MNIST
    return ", ".join(f"{name} ({kind.mirrors[0] + name if mirrored else kind.url})" for name in archives)


def _archives(kind: Any) -> tuple[str, dict[str, str]]:
    """Return where torchvision looks for the archives of a dataset, below its root, and {file name: MD5 sum}."""
    if hasattr(kind, "tgz_md5"):  # CIFAR
        return "", {kind.filename: kind.tgz_md5}
    place = f"{kind.__name__}/raw"
    if hasattr(kind, "md5"):  # EMNIST: one archive for all its splits
        return place, {kind.url.rpartition("/")[2]: kind.md5}
    return place, dict(kind.resources)  # MNIST, Fashion-MNIST
