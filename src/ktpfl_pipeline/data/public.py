"""The public set: inputs without labels that all clients share, on which they exchange soft predictions.

It is another source than the private data (KT-pFL section 5.2.1: MNIST for EMNIST and Fashion-MNIST, CIFAR-100 for
CIFAR-10; no sample of it may be private, see `without_overlap`) or a part of the same one (its Table 5; `open_part`).
"""

import hashlib
import logging

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.rng import derive
from ktpfl_pipeline.data.partition import draw_stratified

logger = logging.getLogger(__name__)
MAX_OVERLAP = 0.01  # a few equal images happen (blank ones, say); more mean that the sources are the same


def open_part(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split off a public share of a dataset, with its label distribution, before the rest is partitioned.

    Of samples with `labels`, (M,), it returns the public and the private indices, both int64 and ascending. An
    `InputError` says that the share is out of range, or that either part would have no sample.
    """
    if not 0 < share < 1:
        raise InputError(f"the public share {share} must be above 0 and below 1, for example 0.1.")
    total = round(share * len(labels))
    if not 0 < total < len(labels):
        raise InputError(
            f"the public share {share} of {plural(len(labels), 'sample')} makes {plural(total, 'sample')} public; at"
            " least one sample must be public and one private. Choose a share nearer to 0.5, or a source with more"
            " samples."
        )
    taken = torch.from_numpy(draw_stratified(labels.numpy(), total, np.random.default_rng(derive(seed, "open_part"))))
    return taken.nonzero().flatten(), (~taken).nonzero().flatten()


def open_indices(private: LabeledDataset, share: float, seed: int) -> tuple[Tensor, int]:
    """Return the indices of an open part of all private samples, without samples that also occur in the rest.

    The second value is how many were left out: these stay private. More than 1 % of the part are warned of.
    """
    chosen, rest = open_part(private.labels, share, seed)
    shared = also_private(private.inputs[chosen], private.inputs[rest])
    if found := int(shared.sum()):
        logger.log(
            logging.WARNING if found > MAX_OVERLAP * len(chosen) else logging.INFO,
            f"Seed {seed}: the open part leaves out {found:,} of the {plural(len(chosen), 'sample')} drawn for it,"
            " because equal samples are private.",
        )
    return chosen[~shared], found


def without_overlap(public: Tensor, private: Tensor) -> Tensor:
    """Return the public samples, (M, ...), that equal no private one, (n, ...); more than 1 % is an `InputError`."""
    shared = also_private(public, private)
    found = int(shared.sum())
    if found > MAX_OVERLAP * len(public):
        raise InputError(
            f"the public set shares {found:,} of its {plural(len(public), 'sample')} with the private data."
            " Choose another public.source, or `public.source: open_part`, which splits a part off the private samples."
        )
    return public[~shared] if found else public


def also_private(public: Tensor, private: Tensor) -> Tensor:
    """Return which public samples are, number by number, equal to a private one, (M,) bool; shapes as above."""
    if public.shape[1:] != private.shape[1:]:
        raise ValueError(f"public samples {tuple(public.shape[1:])} and private {tuple(private.shape[1:])} differ")
    secret = set(_digests(private))
    return torch.tensor([digest in secret for digest in _digests(public)], dtype=torch.bool)


def check_size(available: int, batch: int, left_out: int = 0) -> None:
    """Raise an `InputError` where a round uses more public samples, `batch` (|D_r|), than are `available`.

    The message says how many were `left_out` because they are also private.
    """
    if batch > available:
        without = f", without {plural(left_out, 'private one')}" if left_out else ""
        lower = f"lower public.batch to {available:,} or less, or " if available else ""
        other = "another public.source, whose samples are not private" if left_out else "a larger public source"
        raise InputError(
            f"public.batch is {batch:,} and the public set has {plural(available, 'sample')}{without}: {lower}choose"
            f" {other}."
        )


def _digests(inputs: Tensor) -> list[bytes]:
    """Return a hash of each input: equal inputs have equal ones, and no two others in practice (128 bits)."""
    rows = inputs.flatten(1).numpy()
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]
