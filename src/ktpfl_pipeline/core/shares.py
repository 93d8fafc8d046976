"""Numbers of samples, clients or epochs that are computed as floats and rounded."""

import math


def rounded(share: float, count: int) -> int:
    return round(share * count)


def rounded_up(share: float, count: int) -> int:
    return ceiling(share * count)


def ceiling(value: float) -> int:
    """Return a value rounded up. 0.55 x 100 gives 55, although float64 computes 55.00000000000001."""
    return math.ceil(round(value, 9))
