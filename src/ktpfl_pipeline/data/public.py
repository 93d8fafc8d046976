"""The public set: unlabeled inputs that all clients share, and on which they exchange soft predictions.

The public set is a separate dataset (KT-pFL section 5.2.1: MNIST for EMNIST and Fashion-MNIST, CIFAR-100 for CIFAR-10),
see `without_overlap`. Or it is a part of the private dataset (KT-pFL Table 5), see `open_part`.
"""

import hashlib
import logging

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.rng import derive
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.partition import draw_stratified

logger = logging.getLogger(__name__)
MAX_OVERLAP = 0.01  # a few equal images, such as blank ones, occur by chance; more indicate equal sources


def open_part(labels: Tensor, share: float, seed: int, groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Split off a public share of a dataset, with its label distribution, before the rest is partitioned.

    Args:
        labels: (M,), class numbers of all samples.
        share: the share of the samples that becomes public, above 0 and below 1.
        seed: the seed of the draw.
        groups: (M,) int64, the group of each sample, all of which is public or private; None without groups.

    Returns:
        The indices of the public and of the private samples, both int64 and ascending.

    Raises:
        InputError: if the share is out of range, or one of the two parts would have no sample.
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
    draw, units = np.random.default_rng(derive(seed, "open_part")), None if groups is None else groups.numpy()
    taken = torch.from_numpy(draw_stratified(labels.numpy(), total, draw, units))
    return taken.nonzero().flatten(), (~taken).nonzero().flatten()


def open_indices(private: LabeledDataset, share: float, seed: int, groups: Tensor | None = None) -> tuple[Tensor, int]:
    """Return the indices, (m,) int64, of an open part of the private samples, and the number of excluded samples.

    Drawn samples that are equal to a remaining private sample are excluded and stay private. If they are more than 1 %
    of the part, a warning is logged.
    """
    chosen, rest = open_part(private.labels, share, seed, groups)
    shared = also_private(private.inputs[chosen], private.inputs[rest])
    if found := int(shared.sum()):
        left = (
            f"Seed {seed}: the open part leaves out {found:,} of the {plural(len(chosen), 'sample')} drawn for it,"
            " because equal samples are private."
        )
        if found > MAX_OVERLAP * len(chosen):
            warn("Public samples", f"{left} See whether the source has samples twice.")
        else:
            logger.info(left)
    return chosen[~shared], found


def without_overlap(public: Tensor, private: Tensor) -> Tensor:
    """Return the public samples, (M, ...), without those that are equal to a private sample, (n, ...).

    Raises InputError if they are more than 1 % of the public samples.
    """
    shared = also_private(public, private)
    found = int(shared.sum())
    if found > MAX_OVERLAP * len(public):
        raise InputError(
            f"the public set shares {found:,} of its {plural(len(public), 'sample')} with the private data."
            " Choose another public.source, or `public.source: open_part`, which splits a part off the private samples."
        )
    return public[~shared] if found else public


def also_private(public: Tensor, private: Tensor) -> Tensor:
    """Return whether each public sample, (M, ...), is exactly equal to a private sample, (n, ...), as (M,) bool."""
    if public.shape[1:] != private.shape[1:]:
        raise ValueError(f"public samples {tuple(public.shape[1:])} and private {tuple(private.shape[1:])} differ")
    secret = set(_digests(private))
    return torch.tensor([digest in secret for digest in _digests(public)], dtype=torch.bool)


def check_size(available: int, batch: int, left_out: int = 0) -> None:
    """Raise InputError if the public samples per round, `batch` (B), are more than the `available` public samples.

    The message includes `left_out`, the number of samples that were excluded because they equal private samples.
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
    """Return a 128-bit hash of each input. Only equal inputs have equal hashes, up to a negligible probability."""
    rows = inputs.flatten(1).numpy()
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]
