"""The matrix at its start, and the part of it that belongs to a cohort."""

import pytest
import torch
from matrices import divergence, simplex_rows

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.matrix.blocks import among, block, overlap, random_rows, uniform, write_block
from ktpfl_pipeline.core.matrix.updates import eg


def test_uniform() -> None:
    assert uniform(4).tolist() == [[0.25] * 4] * 4
    assert uniform(3).dtype == torch.float64


def test_random_rows() -> None:
    """Uniform on the simplex: a weight above x has the probability (1 - x)^(n - 1)."""
    few = torch.cat([random_rows(4, rng.stream(seed, "rows"), torch.device("cpu")) for seed in range(2000)])
    assert (few.sum(dim=1) - 1).abs().max() < 1e-12
    assert few.min() >= 0
    for x in (0.1, 0.25, 0.5):
        assert (few > x).double().mean().item() == pytest.approx((1 - x) ** 3, abs=0.01), x


def test_overlap_is_the_share_of_labels_in_common() -> None:
    one = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    other = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.25, 0.25, 0.5]])
    assert torch.allclose(overlap(one, other), torch.tensor([[1.0, 0.2, 0.5], [0.5, 0.0, 0.25]]))


class TestPartialParticipation:
    @pytest.mark.parametrize("cohort", [[2], [0, 3], [1, 4, 6], [0, 1, 2, 3, 4, 5]])
    def test_only_the_block_changes_and_row_sums_stay(self, cohort: list[int]) -> None:
        c, rows = simplex_rows(7), torch.tensor(cohort)
        part, mass = block(c, rows)
        assert torch.allclose(part.sum(dim=1), torch.ones(len(cohort), dtype=torch.float64), rtol=0, atol=1e-15)
        assert torch.allclose(part * mass, c[rows][:, rows], rtol=0, atol=1e-16)
        changed = eg(divergence(len(cohort)), part, 0.5, 10)
        result = write_block(c, rows, changed, mass)
        inside = torch.zeros(7, 7, dtype=torch.bool)
        inside[rows[:, None], rows] = True
        assert torch.equal(result[~inside], c[~inside])
        assert len(cohort) == 1 or not torch.equal(result[inside], c[inside])
        assert (result.sum(dim=1) - c.sum(dim=1)).abs().max() < 1e-15
        assert torch.allclose(block(result, rows)[0], changed, rtol=0, atol=1e-15)

    def test_everyone_is_the_full_update(self) -> None:
        c, everyone = simplex_rows(5), torch.arange(5)
        part, mass = block(c, everyone)
        assert torch.equal(part, c)
        updated = eg(divergence(5), part, 0.5, 10)
        assert torch.equal(write_block(c, everyone, updated, mass), updated)

    def test_an_unchanged_block_keeps_its_bits(self) -> None:
        """Else `frozen` KT-pFL would drift from FedMD: at N = 17, |S| = 11, (1/N / mass) mass is not 1/N."""
        for n in range(2, 25):
            for size in range(1, n):
                for c in (uniform(n), simplex_rows(n)):
                    part, mass = block(c, torch.arange(size))
                    assert torch.equal(write_block(c, torch.arange(size), part, mass), c), (n, size)

    def test_the_matrix_given_is_left_as_it_was(self) -> None:
        c = simplex_rows(4)
        before = c.clone()
        part, mass = block(c, torch.tensor([0, 2]))
        write_block(c, torch.tensor([0, 2]), part.flip(1), mass)
        assert torch.equal(c, before)


class TestAmong:
    def test_by_hand(self) -> None:
        part = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
        shown = among(part, torch.tensor([3, 1]), 4)
        assert shown.tolist() == [[1, 0, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0], [0, 0.75, 0, 0.25]]
        assert shown.dtype == torch.float64

    def test_everyone_is_the_matrix_itself(self) -> None:
        c = simplex_rows(5)
        assert torch.equal(among(c, torch.arange(5), 5), c)

    @pytest.mark.parametrize("cohort", [[2], [0, 3], [6, 1, 4]])
    def test_the_block_of_the_cohort_is_what_it_was(self, cohort: list[int]) -> None:
        part, rows = simplex_rows(len(cohort)), torch.tensor(cohort)
        shown = among(part, rows, 7)
        assert torch.allclose(block(shown, rows)[0], part, rtol=0, atol=1e-15)
        assert torch.allclose(shown.sum(dim=1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-15)
