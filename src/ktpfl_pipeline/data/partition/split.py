"""The split of a client's samples into train, validation and test."""

import itertools
import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.rng import derive
from ktpfl_pipeline.core.shares import rounded_up
from ktpfl_pipeline.data.settings import Partition

Array = NDArray[np.int64]


class ClientIndices(NamedTuple):
    """The samples of one client: ascending indices into the dataset, (n,) int64 each. `validation` may be empty."""

    train: Tensor
    validation: Tensor
    test: Tensor


def least(how: Partition) -> str:
    """Return the numbers of samples that a client needs, as text for messages."""
    validated = "1 to validate on, " if how.validation_share else ""
    return f"each client needs at least 2 to train on, {validated}and 1 to test on"


def least_samples(how: Partition) -> int:
    """Return the smallest number of samples of a client that can be split."""
    return next(samples for samples in itertools.count(3) if fits(samples, how))


def shortage(own: ClientIndices, how: Partition) -> str:
    """Return the numbers of samples that a client has and that it needs, as text for messages."""
    others = len(own.train) + len(own.validation)
    return f"{plural(others, 'sample')} to train and validate on and {len(own.test)} to test on, and {least(how)}"


def split(
    mine: Array,
    labels: Tensor,
    how: Partition,
    draw: np.random.Generator,
    test: Tensor | None = None,
    groups: Tensor | None = None,
) -> ClientIndices:
    """Split the samples of a client, stratified by class. Samples of a group stay together.

    Args:
        mine: (n,), indices of the client's samples.
        labels: (M,), class numbers of all samples.
        how: the shares of the splits.
        draw: the random generator.
        test: (M,) bool, the test samples of the source; None draws test samples.
        groups: (M,) int64, the groups of all samples; None without groups.
    """

    def drawn(part: Array, total: int) -> NDArray[np.bool_]:
        return draw_stratified(labels.numpy()[part], total, draw, None if groups is None else groups.numpy()[part])

    tested = drawn(mine, sizes(len(mine), how)[1]) if test is None else test.numpy()[mine]
    rest = mine[~tested]
    validation = drawn(rest, _validation(len(rest), how))
    return ClientIndices(*(torch.from_numpy(part) for part in (rest[~validation], rest[validation], mine[tested])))


def sizes(samples: int, how: Partition) -> tuple[int, int]:
    test = rounded_up(how.test_share, samples)
    return samples - test - _validation(samples - test, how), test


def _validation(rest: int, how: Partition) -> int:
    return max(1, round(rest * how.validation_share)) if how.validation_share else 0


def fits(samples: int, how: Partition) -> bool:
    """Return whether a client with `samples` samples has at least two for training and one for test."""
    train, test = sizes(samples, how)
    return train >= 2 and test >= 1


def is_whole(own: ClientIndices, how: Partition) -> bool:
    """Return whether a client has at least two training samples, one test sample and, if needed, one for validation."""
    return len(own.train) >= 2 and len(own.test) > 0 and (not how.validation_share or len(own.validation) > 0)


def enough(how: Partition, limit: int) -> int:
    """Return the smallest number of samples of a client, or of one class, that can always be split.

    A class with this many samples has at least one test sample (its quota is at least one) and at least one training
    sample, even if largest remainders round both other quotas up. With the default shares the number is four; it is
    `limit` if no smaller number is enough.
    """

    def holds(samples: int) -> bool:
        rest = samples - math.floor(samples * how.test_share + 0.5) - 1
        train = rest - (math.floor(rest * how.validation_share + 0.5) + 1 if how.validation_share else 0)
        return train >= 1 and samples * how.test_share >= 1 and fits(samples, how)

    return bisect_left(range(limit), True, key=holds)  # if true for a number, it is true for all larger numbers


def draw_stratified(
    labels: Array, total: int, rng: np.random.Generator, groups: Array | None = None
) -> NDArray[np.bool_]:
    """Return a stratified random draw of `total` samples, as (M,) bool, from the samples with `labels`, (M,).

    The number of samples per class is proportional, rounded by the largest-remainder method. Ties are broken at random.
    With `groups`, (M,), whole groups are drawn, stratified by the most frequent class of each group: the same share of
    the groups, at least one, and not all of them.
    """
    if groups is not None:
        units, unit = np.unique(groups, return_inverse=True)
        classes, label = np.unique(labels, return_inverse=True)
        counts = np.zeros((len(units), len(classes)), dtype=np.int64)
        np.add.at(counts, (unit, label), 1)
        share = min(max(round(total / len(labels) * len(units)), 1), len(units) - 1) if 0 < total < len(labels) else 0
        return draw_stratified(counts.argmax(axis=1), share, rng)[unit]
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
    """Return a NumPy generator for a named random stream, see `core.rng.derive`."""
    return np.random.default_rng(derive(seed, purpose, *names))
