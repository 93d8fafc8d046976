"""How unlike the clients' labels are: measures of a partition, of (N, K) counts of samples by client and class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

Shares = NDArray[np.float64]


class LabelSkew(NamedTuple):
    """How unlike the clients' label distributions p_1 ... p_N are, and how unlike their sizes.

    Attributes:
        jensen_shannon: mean over pairs of clients of the Jensen-Shannon divergence to base 2: 0 alike, 1 no class in
            common.
        hellinger: mean over pairs of the Hellinger distance, 0 to 1 likewise.
        earth_mover: mean over clients of Σ_k |p_nk - p_k|, p being the distribution of all samples (Zhao et al. 2018):
            0 alike, below 2.
        classes: mean over clients of exp(entropy): of how many equally frequent classes a client's labels are.
        sizes: standard deviation of the clients' numbers of samples, in units of their mean.
    """

    jensen_shannon: float
    hellinger: float
    earth_mover: float
    classes: float
    sizes: float


def label_skew(counts: ArrayLike) -> LabelSkew:
    """Return the measures of (N, K) counts, each client with one sample or more; pairs of a single client are alike."""
    counted = np.asarray(counts, dtype=np.float64)
    sizes = counted.sum(axis=1)
    shares, overall = counted / sizes[:, None], counted.sum(axis=0) / sizes.sum()
    pairs = len(counted) * (len(counted) - 1) / 2 or 1
    return LabelSkew(
        jensen_shannon=sum(_jensen_shannon(one, shares[n + 1 :]) for n, one in enumerate(shares)) / pairs,
        hellinger=sum(_hellinger(one, shares[n + 1 :]) for n, one in enumerate(shares)) / pairs,
        earth_mover=float(np.abs(shares - overall).sum(axis=1).mean()),
        classes=float(np.exp(entr(shares).sum(axis=1)).mean()),
        sizes=float(sizes.std() / sizes.mean()),
    )


def _jensen_shannon(one: Shares, others: Shares) -> float:
    """Return the sum of the divergences between a distribution (K,) and others (n, K), in bits."""
    apart = entr((one + others) / 2) - (entr(one) + entr(others)) / 2
    return float(np.maximum(apart.sum(axis=1), 0).sum() / np.log(2))


def _hellinger(one: Shares, others: Shares) -> float:
    """Return the sum of the distances between a distribution (K,) and others (n, K)."""
    return float(np.sqrt(((np.sqrt(one) - np.sqrt(others)) ** 2).sum(axis=1) / 2).sum())
