"""The settings of a learned matrix: which weights are mixed, how far a step goes, and what each row weighs."""

from typing import Any, get_args, get_type_hints

import pytest
import torch
from matrices import data_weights, divergence, simplex_rows

from ktpfl_pipeline.core.matrix.blocks import block, write_block
from ktpfl_pipeline.core.matrix.learned import LearnedMatrix
from ktpfl_pipeline.core.matrix.updates import UPDATES

ROWS = torch.tensor([4, 0, 2])


@pytest.mark.parametrize("order", ["paper", "coefficients_first"])
def test_learns_the_cohorts_block_and_mixes_with_it_before_or_after(order: Any) -> None:
    c, objective = simplex_rows(5), divergence(3)
    before, mass = block(c, ROWS)
    after = UPDATES["eg"](objective, before, 0.3, 2)
    mixing, learned = LearnedMatrix(step=0.3, steps=2, order=order).learn(c, ROWS, objective)
    assert torch.equal(mixing, before if order == "paper" else after)
    assert torch.equal(learned, write_block(c, ROWS, after, mass))


@pytest.mark.parametrize(("update", "step"), [("eg", 2 / 8), ("softmax", 2 / 8), ("pgd", None)])
def test_a_step_of_none_shrinks_with_rho(update: Any, step: float) -> None:
    c, objective, everyone = simplex_rows(5), divergence(5), torch.arange(5)
    found = [
        LearnedMatrix(update=update, rho=6.0, step=given).learn(c, everyone, objective)[1] for given in (None, step)
    ]
    assert torch.equal(*found)


def test_a_row_that_gives_its_cohort_no_mass_mixes_it_equally_and_nothing_is_nan() -> None:
    """Client 0 listens to client 1 alone, and is in a cohort without it."""
    c = simplex_rows(5)
    c[0] = torch.eye(5, dtype=torch.float64)[1]
    mixing, learned = LearnedMatrix().learn(c, ROWS, divergence(3))
    assert mixing[1].tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    assert torch.equal(learned[0], c[0])
    assert learned.isfinite().all()
    assert torch.allclose(learned.sum(dim=1), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-15)


def test_row_weights() -> None:
    shares = data_weights(4)
    assert torch.equal(LearnedMatrix().row_weights(shares), 4 * shares)  # λ is the cohort's size
    assert torch.equal(LearnedMatrix(divergence_weight=3.0).row_weights(shares), 3 * shares)
    assert LearnedMatrix(row_weight="uniform").row_weights(shares).tolist() == [1.0] * 4


def test_every_update_may_be_chosen() -> None:
    assert get_args(get_type_hints(LearnedMatrix)["update"]) == tuple(UPDATES)
