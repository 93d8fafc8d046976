"""Label skew: measures of a partition, from (N, K) counts of samples by client and class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist
from scipy.special import entr


class LabelSkew(NamedTuple):
    """Measures of how much the clients' label distributions p_1 ... p_N and their sizes differ."""

    jensen_shannon: float  #: divergence to base 2, mean over pairs of clients, 0 alike, 1 no class in common
    hellinger: float  #: distance, mean over pairs, 0 alike, 1 no class in common
    #: mean over clients of the sum over classes of the distance of p_nk to p_k, p being the distribution of all samples
    #: (Zhao et al. 2018), 0 alike, below 2
    earth_mover: float
    classes: float  #: mean over clients of exp(entropy), of how many equally frequent classes a client's labels are
    sizes: float  #: standard deviation of the clients' numbers of samples, in units of their mean


def label_skew(counts: ArrayLike) -> LabelSkew:
    """Return the measures of (N, K) counts, each client with one sample or more; pairs of a single client are alike."""
    counted = np.asarray(counts, dtype=np.float64)
    sizes = counted.sum(axis=1)
    shares, overall = counted / sizes[:, None], counted.sum(axis=0) / sizes.sum()
    pairs = len(counted) * (len(counted) - 1) / 2 or 1
    distances = np.nan_to_num(pdist(shares, "jensenshannon"))  # of alike ones, rounding may have made a root's negative
    return LabelSkew(
        jensen_shannon=float((distances**2).sum() / np.log(2) / pairs),
        hellinger=float(pdist(np.sqrt(shares)).sum() / np.sqrt(2) / pairs),
        earth_mover=float(np.abs(shares - overall).sum(axis=1).mean()),
        classes=float(np.exp(entr(shares).sum(axis=1)).mean()),
        sizes=float(sizes.std() / sizes.mean()),
    )
