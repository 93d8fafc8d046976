"""Measures of label skew against what they are on paper."""

import math

import numpy as np
import pytest

from ktpfl_pipeline.analysis.skew import LabelSkew, label_skew


def test_equal_clients_are_not_skewed():
    assert label_skew([[3, 1], [30, 10], [6, 2]])[:3] == pytest.approx((0, 0, 0), abs=1e-12)


def test_clients_without_a_common_class_are_as_skewed_as_can_be():
    found = label_skew([[5, 0, 0, 0], [0, 5, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5]])
    assert found == pytest.approx(LabelSkew(1, 1, 1.5, 1, 0))


def test_two_clients_by_hand():
    """p = (1/2, 1/2), q = (1, 0), of 2 and 6 samples: all have (7/8, 1/8)."""
    found = label_skew([[1, 1], [6, 0]])
    middle = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert found.jensen_shannon == pytest.approx(middle - 0.5)
    assert found.hellinger == pytest.approx(math.sqrt(1 - math.sqrt(0.5)))
    assert found.earth_mover == pytest.approx((0.75 + 0.25) / 2)
    assert found.classes == pytest.approx(1.5)
    assert found.sizes == pytest.approx(0.5)


def test_one_client_is_alike():
    assert label_skew([[4, 4]]) == pytest.approx(LabelSkew(0, 0, 0, 2, 0))


def test_pairs_are_counted_once():
    counts = np.random.default_rng(0).integers(0, 9, (7, 5)) + 1
    each = [label_skew(counts[[i, j]]) for i in range(7) for j in range(i)]
    found = label_skew(counts)
    assert found.jensen_shannon == pytest.approx(np.mean([pair.jensen_shannon for pair in each]))
    assert found.hellinger == pytest.approx(np.mean([pair.hellinger for pair in each]))
