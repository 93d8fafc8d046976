"""Does what a client sent hold anything private? A search for its images, its labels and its models, in any bytes.

What was sent encrypted, compressed or in parts shorter than `PIECE` numbers is not found.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.executors.serial import SerialExecutor

PIECE = 48
"""Numbers in a row that are looked for: the part of an image or of a model's tensor that differs most."""
DISTINCT = 6
"""Values that these must have at least: a white part is of no image."""
FLOATS = ("<f2", "<f4", "<f8")
WORD = 8


def private(splits: Iterable[LabeledDataset]) -> list[bytes]:
    """Return pieces of all samples, in every kind of number: what must stay with their client."""
    return [piece for split in splits for piece in (*pictures(split.inputs), *answers(split.labels))]


def pictures(images: Tensor) -> Iterator[bytes]:
    """Yield a piece of each image, (M, ...) uint8: its bytes, from 0 to 1, and from -1 to 1 as a model takes it."""
    for image in images.flatten(1).numpy():
        for piece in _telling(image):
            yield piece.tobytes()
            for scaled in (piece, piece / 255, piece / np.float32(127.5) - np.float32(1)):
                yield from (scaled.astype(kind).tobytes() for kind in FLOATS)


def answers(labels: Tensor) -> Iterator[bytes]:
    """Yield the first labels, (M,), in each kind of number."""
    for kind in ("u1", "<i2", "<i4", "<i8", *FLOATS):
        yield labels[:PIECE].numpy().astype(kind).tobytes()


def weights(model: Mapping[str, Tensor]) -> Iterator[bytes]:
    """Yield a piece of each of a model's tensors, but of those that are all zeros or ones still."""
    for tensor in model.values():
        for piece in _telling(tensor.detach().flatten().cpu().numpy()):
            yield from (piece.astype(kind).tobytes() for kind in FLOATS)


def held(sent: Iterable[bytes], pieces: Iterable[bytes]) -> int:
    """Return how many of the pieces are in what was sent."""
    whole, found = b"\0".join(sent) + bytes(WORD), set()
    known: dict[int, list[tuple[bytes, int]]] = {}
    for piece in pieces:
        if len(piece) < 2 * WORD:
            continue  # so few bytes are anywhere by chance
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
    """Looks on while all clients compute in one process.

    Attributes:
        models: pieces of every model that each client made.
        knowledge: pieces of all predictions and prototypes that each client was asked for.
    """

    def __init__(self) -> None:
        """See nothing yet."""
        super().__init__()
        self.models: dict[int, list[bytes]] = defaultdict(list)
        self.knowledge: dict[int, list[bytes]] = defaultdict(list)

    def outcomes(self, setting: Any, phase: str, operation: Any, calls: Any, progress: Any) -> Any:
        """Return what is asked for, and remember pieces of it."""
        found = super().outcomes(setting, phase, operation, calls, progress)
        for n, outcome in found.items():
            value = outcome.value[0] if isinstance(outcome.value, tuple) else outcome.value
            if isinstance(value, Mapping):
                self.models[n] += weights(value)
            elif phase != "evaluate":
                self.knowledge[n] += weights({"": value})
        return found


def _telling(values: Any) -> Iterator[Any]:
    """Yield `PIECE` numbers in a row of an array, (n,), with as many different ones as can be, unless they are few."""
    starts = range(0, max(1, len(values) - PIECE + 1), PIECE // 2)
    best = max((values[start : start + PIECE] for start in starts[:64]), key=lambda part: len(np.unique(part)))
    if len(np.unique(best)) >= DISTINCT:
        yield best
