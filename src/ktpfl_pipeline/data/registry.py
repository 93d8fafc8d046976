"""The names of sources and of partition schemes. Importing this module does not import torch, which takes seconds."""

import re
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError, unknown

SOURCES: dict[str, str] = {
    "digits": "digits",
    "cifar10": "downloads:CIFAR10",
    "cifar100": "downloads:CIFAR100",
    "mnist": "downloads:MNIST",
    "fashion_mnist": "downloads:FashionMNIST",
    "emnist": "downloads:EMNIST",  # emnist:<split>, letters by default
    "npz": "npz",  # npz:<path>
    "folder": "folder",  # folder:<path>
    "clients": "clients",  # clients:<path>
    "leaf": "leaf",  # leaf:<path>
    "table": "table",  # table:<path>
    "text": "text",  # text:<path>
}
"""The module of each source in `data.sources`, which has the function `load`; and the dataset's name in torchvision."""
RAW = Path("data/01_raw")
"""The folder of a project in which relative paths of sources start."""
FILES = {".npz": ("npz",), ".csv": ("table", "text"), ".json": ("leaf",)}
"""The sources that read one file, by the file's suffix."""
PATH = re.compile(r"(?P<path>\w+(?:\.\w+)+:\w+)(?::(?P<argument>.*))?", re.DOTALL)
"""The dotted path and the argument of a source outside this package. A dot distinguishes it from ``name:argument``."""
SCHEMES = ("iid", "all_labels", "two_labels", "lognormal", "k_labels", "dirichlet", "shards", "quantity")
"""The partition schemes, whose functions are in `data.partition.schemes`."""
NATURAL = "natural"
"""The partition scheme that uses the clients that the source names."""


def of_file(name: str) -> str:
    """Return how to write a file as a source, such as ``'npz:mine.npz'``; empty if no source reads such files."""
    kinds = () if ":" in name else FILES.get(Path(name).suffix, ())
    return " or ".join(repr(f"{kind}:{name}") for kind in kinds)


def split(source: str) -> tuple[str, str]:
    """Return the name of a source, or its dotted path, and its argument. Raises InputError for an unknown name."""
    name, _, argument = source.partition(":")
    if name in SOURCES:
        return name, argument
    if own := PATH.fullmatch(source):
        return own["path"], own["argument"] or ""
    if meant := of_file(source):
        raise InputError(f"source {source!r} is unknown: a file of your own is given as {meant}.")
    raise unknown("source", source, SOURCES)
