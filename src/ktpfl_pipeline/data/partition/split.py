"""A client's samples, split into those to train on, to validate on and to test on."""

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ktpfl_pipeline.core.rng import derive

Array = NDArray[np.int64]


class ClientIndices(NamedTuple):
    """The samples of one client, as ascending indices into the dataset, int64.

    Attributes:
        train: (n,), to train on.
        validation: (n,), to choose hyperparameters on; empty when the validation share is 0.
        test: (n,), to report accuracy on.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def least(validation_share: float) -> str:
    """Return the number of samples that a client needs, in words."""
    validated = "1 to validate on, " if validation_share else ""
    return f"each client needs at least 2 to train on, {validated}and 1 to test on"


def split(
    mine: Array,
    labels: Array,
    test_share: float,
    validation_share: float,
    draw: np.random.Generator,
    test: NDArray[np.bool_] | None = None,
) -> ClientIndices:
    """Split the samples `mine` with their `labels`, both (n,), stratified by class.

    `test`, (n,), says which are tested on where that is given; else they are drawn too.
    """
    if test is None:
        test = draw_stratified(labels, sizes(len(mine), test_share, validation_share)[1], draw)
    rest = mine[~test]
    validation = draw_stratified(labels[~test], _validation(len(rest), validation_share), draw)
    return ClientIndices(*(torch.from_numpy(part) for part in (rest[~validation], rest[validation], mine[test])))


def sizes(samples: int, test_share: float, validation_share: float) -> tuple[int, int]:
    """Return how many of a client's samples are for training, and for test."""
    test = math.ceil(samples * test_share - 1e-9)  # 0.07 x 100 is 7.000000000000001
    return samples - test - _validation(samples - test, validation_share), test


def _validation(rest: int, share: float) -> int:
    return max(1, round(rest * share)) if share else 0


def fits(samples: int, test_share: float, validation_share: float) -> bool:
    """Return whether two samples to train on remain, and one to test on."""
    train, test = sizes(samples, test_share, validation_share)
    return train >= 2 and test >= 1


def is_whole(own: ClientIndices, validation_share: float) -> bool:
    """Return whether a client has two samples to train on, one to test on and, if asked, one to validate on."""
    return len(own.train) >= 2 and len(own.test) > 0 and (not validation_share or len(own.validation) > 0)


def enough(test_share: float, validation_share: float, limit: int) -> int:
    """Return the smallest number of samples, of a client or of one class, that can always be split.

    A class with this many samples has at least one test sample (its quota is at least one) and at least one training
    sample, even if largest remainders round both other quotas up. With the default shares the number is four; it is
    `limit` if no smaller number is enough.
    """

    def holds(samples: int) -> bool:
        rest = samples - math.floor(samples * test_share + 0.5) - 1
        train = rest - (math.floor(rest * validation_share + 0.5) + 1 if validation_share else 0)
        return train >= 1 and samples * test_share >= 1 and fits(samples, test_share, validation_share)

    return bisect_left(range(limit), True, key=holds)  # once it holds, it holds for all larger numbers


def draw_stratified(labels: Array, total: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which samples a random draw of `total` takes, (M,) bool, with the label distribution of all.

    Each class gives its proportional number, rounded by largest remainders; equal remainders are settled by lot.

    Args:
        labels: (M,) of all samples.
        total: how many to take.
        rng: of the draw.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(counts * total, max(len(labels), 1))
    by_remainder = np.lexsort((rng.permutation(len(counts)), -remainder))
    quota[by_remainder[: total - quota.sum()]] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(classes[order], kind="stable")]  # class by class, shuffled within
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.zeros(len(labels), dtype=np.bool_)
    taken[order] = rank < np.repeat(quota, counts)
    return taken


def stream(seed: int, purpose: str, *names: int | str) -> np.random.Generator:
    """Return numpy's generator of a named stream, see `core.rng.derive`."""
    return np.random.default_rng(derive(seed, purpose, *names))
