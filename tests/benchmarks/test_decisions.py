"""The intervals of single clients cover the true difference, and choices on more samples are right more often."""

from statistics import fmean

import decisions
import numpy as np
import pytest


@pytest.mark.parametrize("same", [True, False], ids=["the same samples", "new samples"])
def test_intervals_cover_the_true_difference(same: bool) -> None:
    """The shares of 150 clients; docs/fair_comparisons.md has those of 1,000."""
    draw = np.random.default_rng(0)
    assert fmean(decisions.covered(same, 100, 3, 0.05, draw) for _ in range(150)) >= 0.9


def test_a_choice_on_more_samples_is_right_more_often() -> None:
    draw = np.random.default_rng(0)
    better, worse = ([decisions.keeping(gain, samples, draw) for samples in (5, 100)] for gain in (0.1, -0.1))
    assert better[0] < 0.6
    assert better[1] > 0.95
    assert worse[1] < 0.05
    assert 0.05 < worse[0] < 0.2
