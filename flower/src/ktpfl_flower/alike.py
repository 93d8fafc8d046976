"""The properties that the server and all clients must have in common, so that they round in the same way."""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Annotated, Any, Literal, cast

import torch
from annotated_types import Ge, Le, MaxLen
from torch import Tensor

from ktpfl_pipeline import __version__
from ktpfl_pipeline.config.schema import Image
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import Vocabulary
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.settings import Compute, MemoryFormat
from ktpfl_pipeline.core.validation import Count, parse
from ktpfl_pipeline.data.sources import adapt
from ktpfl_pipeline.data.sources.tokens import MAX_VOCABULARY
from ktpfl_pipeline.data.standardization import Standardization

PROCESSORS = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""The names of some systems for the same kind of processor."""


@dataclass(frozen=True)
class Arithmetic:
    """How the server and the clients compute; each chooses its own device."""

    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    memory_format: MemoryFormat = Compute.memory_format
    threads: Count = Compute.threads
    prediction_batch: Count = Compute.prediction_batch


def arithmetic(compute: Compute) -> dict[str, Any]:
    """Return the fields of `Arithmetic` in the settings of an experiment; raise InputError if one is not allowed."""
    given = {each.name: getattr(compute, each.name) for each in fields(Arithmetic)}
    return asdict(parse(Arithmetic, given, "with real clients, experiment.compute"))


@dataclass(frozen=True)
class Meaning:
    """The meaning of token ids, in a form that the server and the clients can compare.

    Attributes:
        fingerprint: a hash of the tokens in the order of their ids.
        size: the number of ids.
        padding: the id that fills short texts; None if there is none.
    """

    fingerprint: Annotated[str, MaxLen(64)]
    size: Annotated[int, Ge(1), Le(MAX_VOCABULARY)]
    padding: Annotated[int, Ge(0), Le(MAX_VOCABULARY)] | None = None

    def __str__(self) -> str:
        """Return the attributes in words."""
        padding = "no padding" if self.padding is None else f"padding id {self.padding}"
        return f"{self.size:,} tokens, {padding}, fingerprint {self.fingerprint}"


@dataclass(frozen=True)
class Data:
    """The kind of samples that a client or the public set has.

    Attributes:
        kind: the kind of the samples.
        vocabulary: the meaning of token ids; None for other kinds.
        columns: a fingerprint of the names of the features of vectors, in their order; empty if they have no names.
    """

    kind: Literal["images", "features", "tokens"] = "images"
    vocabulary: Meaning | None = None
    columns: Annotated[str, MaxLen(64)] = ""


def prepared(
    inputs: Tensor, known: Vocabulary | None, source: str, image: Image | None, columns: Sequence[str] | None = None
) -> tuple[Tensor, Data]:
    """Return samples of a source, (M, ...), with the channels and size of `image`, and the `Data` that parties compare.

    Raises:
        InputError: if other parties could not compare the tokens, because the source has no vocabulary or built it from
            its own texts; or if `image` is set, but the samples are not images.
    """
    kind = kinds.of(inputs)
    if image is not None and not kind.pixels:
        raise InputError(f"image is set, but {source} has {kind.name}. Remove image.")
    meaning = None
    if known is not None:
        if known.frequent is not None:
            raise InputError(
                f"{source} has texts whose vocabulary is made from these texts, so it would differ between clients. "
                "Set text.tokenizer to the same tokenizer.json at the server and at all clients."
            )
        if known.words is None:
            raise InputError(
                f"{source} has tokens without a vocabulary, so nothing shows whether others' ids mean the same. Save "
                "the array 'vocabulary' in the file, the same at the server and at all clients."
            )
        meaning = Meaning(digest(list(known.words)), known.size, known.padding)
    data = Data(cast("Any", kind.name), meaning, digest(list(columns)) if columns else "")
    return inputs if image is None else adapt(inputs, image.shape), data


def scale_of(inputs: Tensor) -> Standardization | None:
    """Return the standardization of all parties' features, fitted to public ones, (M, ...); None for other kinds.

    It is fitted to public samples, so that no client has to tell anything about its own.
    """
    return Standardization.of(inputs, [torch.arange(len(inputs))]) if kinds.of(inputs).standardized else None


def versions() -> dict[str, str]:
    """Return the versions that the server and all clients must have in common."""
    processor = platform.machine().lower()
    return {
        "ktpfl_pipeline": __version__,
        "torch": torch.__version__.partition("+")[0],
        "torchvision": version("torchvision").partition("+")[0],
        "processor": PROCESSORS.get(processor, processor),
    }
