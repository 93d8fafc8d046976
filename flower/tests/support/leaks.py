"""A search for private data in the bytes that a client sent: its images, its labels and its models.

The search does not find data that were encrypted, compressed or sent in parts shorter than `PIECE` numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.executors.serial import SerialExecutor

PIECE = 48
"""The length of a searched piece: consecutive numbers of an image or a tensor, with the most different values."""
DISTINCT = 6
"""The least number of different values in a piece, because a white part can be in any image."""
FLOATS = ("<f2", "<f4", "<f8")
WORD = 8


def private(splits: Iterable[LabeledDataset]) -> list[bytes]:
    """Return pieces of all samples in every number format, which must not leave their client."""
    return [piece for split in splits for piece in (*pictures(split.inputs), *answers(split.labels))]


def pictures(images: Tensor) -> Iterator[bytes]:
    """Yield a piece of each image, (M, ...) uint8: as bytes, scaled to [0, 1], and scaled to [-1, 1] as for models."""
    for image in images.flatten(1).numpy():
        for piece in _telling(image):
            yield piece.tobytes()
            for scaled in (piece, piece / 255, piece / np.float32(127.5) - np.float32(1)):
                yield from (scaled.astype(kind).tobytes() for kind in FLOATS)


def answers(labels: Tensor) -> Iterator[bytes]:
    """Yield the first of the labels, (M,), in each number format."""
    for kind in ("u1", "<i2", "<i4", "<i8", *FLOATS):
        yield labels[:PIECE].numpy().astype(kind).tobytes()


def weights(model: Mapping[str, Tensor]) -> Iterator[bytes]:
    """Yield a piece of each tensor of a model, except tensors that still are all zeros or ones."""
    for tensor in model.values():
        for piece in _telling(tensor.detach().flatten().cpu().numpy()):
            yield from (piece.astype(kind).tobytes() for kind in FLOATS)


def held(sent: Iterable[bytes], pieces: Iterable[bytes]) -> int:
    """Return the number of pieces that are in the sent bytes."""
    whole, found = b"\0".join(sent) + bytes(WORD), set()
    known: dict[int, list[tuple[bytes, int]]] = {}
    for piece in pieces:
        if len(piece) < 2 * WORD:
            continue  # so few bytes can occur by chance
        places = range(0, len(piece) - WORD + 1, max(1, len(piece) // 16))
        place = max(places, key=lambda at: len({*piece[at : at + WORD]}))
        known.setdefault(int.from_bytes(piece[place : place + WORD], "little"), []).append((piece, place))
    words = np.array(sorted(known), "<u8")
    for start in range(WORD):
        said = np.frombuffer(whole, "<u8", (len(whole) - start) // WORD, start)
        for at in np.flatnonzero(np.isin(said, words)).tolist():
            for piece, place in known[int(said[at])]:
                first = at * WORD + start - place
                if first >= 0 and whole.startswith(piece, first):
                    found.add(piece)
    return len(found)


class Watching(SerialExecutor):
    """Records pieces of data while all clients compute in one process.

    Attributes:
        models: pieces of every model that each client made.
        knowledge: pieces of all predictions and prototypes that each client was asked for.
    """

    def __init__(self) -> None:
        """Start without pieces."""
        super().__init__()
        self.models: dict[int, list[bytes]] = defaultdict(list)
        self.knowledge: dict[int, list[bytes]] = defaultdict(list)

    def outcomes(self, setting: Any, phase: str, operation: Any, calls: Any, progress: Any) -> Any:
        """Return the outcomes, and record pieces of them."""
        found = super().outcomes(setting, phase, operation, calls, progress)
        for n, outcome in found.items():
            value = outcome.value[0] if isinstance(outcome.value, tuple) else outcome.value
            if isinstance(value, Mapping):
                self.models[n] += weights(value)
            elif phase != "evaluate":
                self.knowledge[n] += weights({"": value})
        return found


def _telling(values: Any) -> Iterator[Any]:
    """Yield the `PIECE` consecutive numbers of an array, (n,), with most different values, if these are enough."""
    starts = range(0, max(1, len(values) - PIECE + 1), PIECE // 2)
    best = max((values[start : start + PIECE] for start in starts[:64]), key=lambda part: len(np.unique(part)))
    if len(np.unique(best)) >= DISTINCT:
        yield best
