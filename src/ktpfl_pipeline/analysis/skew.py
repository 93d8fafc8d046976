"""Measures of label skew of a partition, from the numbers of samples per client and class, (N, K)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class LabelSkew(NamedTuple):
    """Measures of the differences between clients: label distributions p_1 ... p_N, and numbers of samples."""

    jensen_shannon: float  #: divergence to base 2, mean over pairs of clients; 0: equal, 1: no common class
    hellinger: float  #: distance, mean over pairs of clients; 0: equal, 1: no common class
    #: mean over clients n of the sum over classes k of |p_nk - p_k|, where p is the distribution of all samples
    #: (Zhao et al. 2018); 0: equal, always below 2
    earth_mover: float
    classes: float  #: mean over clients of exp(entropy), the effective number of classes of a client
    sizes: float  #: coefficient of variation of the clients' numbers of samples


def label_skew(counts: ArrayLike) -> LabelSkew:
    """Return the measures for `counts`, (N, K), the numbers of samples per client and class.

    Each client has at least one sample. With a single client, the measures over pairs are 0.
    """
    from scipy.spatial.distance import pdist
    from scipy.special import entr

    counted = np.asarray(counts, dtype=np.float64)
    sizes = counted.sum(axis=1)
    shares, overall = counted / sizes[:, None], counted.sum(axis=0) / sizes.sum()
    pairs = len(counted) * (len(counted) - 1) / 2 or 1
    distances = np.nan_to_num(pdist(shares, "jensenshannon"))  # for equal rows, rounding may give NaN
    return LabelSkew(
        jensen_shannon=float((distances**2).sum() / np.log(2) / pairs),
        hellinger=float(pdist(np.sqrt(shares)).sum() / np.sqrt(2) / pairs),
        earth_mover=float(np.abs(shares - overall).sum(axis=1).mean()),
        classes=float(np.exp(entr(shares).sum(axis=1)).mean()),
        sizes=float(sizes.std() / sizes.mean()),
    )
