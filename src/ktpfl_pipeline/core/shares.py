"""Shares of a number of samples or clients."""

import math


def rounded_up(share: float, count: int) -> int:
    """Return a share of a count, rounded up. 0.55 x 100 gives 55, although float64 computes 55.00000000000001."""
    return math.ceil(round(share * count, 9))
