import math

import pytest
import torch

from ktpfl_pipeline.analysis import theorem
from ktpfl_pipeline.analysis.theorem import check, fit_mixture
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Likelihood
from ktpfl_pipeline.core.matrix.updates import exact


def some(images: int, models: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(images, models, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_models_by_hand() -> None:
    """One image each on which the other model is wrong: by symmetry half and half, where both likelihoods are 0.5."""
    c, certificate = fit_mixture(torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64))
    assert c.tolist() == pytest.approx([0.5, 0.5])
    assert certificate <= 1e-8


def test_a_model_that_is_always_better_gets_all() -> None:
    c, certificate = fit_mixture(torch.tensor([[0.9, 0.3], [0.8, 0.2]], dtype=torch.float64))
    assert c.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
    assert certificate <= 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_optimum_that_the_solver_of_the_matrix_finds(seed: int) -> None:
    p = some(40, 5, seed)
    c, certificate = fit_mixture(p)
    objective = Likelihood(p.expand(5, 40, 5), torch.full((5,), 40.0).double(), torch.ones(5).double(), rho=0.0)
    solved = exact(objective, uniform(5))
    assert -(p @ c).log().mean() == pytest.approx(float(objective.value(solved)[0]), abs=2e-8)
    assert certificate <= 1e-8


def test_the_certificate_bounds_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    p = some(30, 6)
    best = -(p @ fit_mixture(p)[0]).log().mean()
    monkeypatch.setattr(theorem, "GAP", 1e-2)
    c, certificate = fit_mixture(p)
    assert 1e-6 < -(p @ c).log().mean() - best <= certificate


class TestCheck:
    def test_the_theorem_holds_on_the_images_that_were_fitted(self) -> None:
        n = 6
        said = [
            torch.softmax(3 * torch.randn(25, n, 4, generator=torch.Generator().manual_seed(i)), 2) for i in range(n)
        ]
        truth = [torch.randint(0, 4, (25,), generator=torch.Generator().manual_seed(100 + i)) for i in range(n)]
        found = check(said, truth, torch.eye(n), seed=3)
        assert found is not None
        for name in ("own", "average", "learned"):
            for fitted, other, certificate in zip(found.fit["fitted"], found.fit[name], found.certificate, strict=True):
                assert fitted <= other + certificate
        assert found.test["learned"] == found.test["own"]  # the learned rows are the identity
        assert found.accuracy["learned"] == found.accuracy["own"]
        assert found.samples == [[12, 13]] * n
        assert all(sum(row) == pytest.approx(1.0) for row in found.coefficients)

    def test_numbers_by_hand(self) -> None:
        """Two clients, two classes; model 0 gives 0.8 to class 0 always, model 1 gives 0.4 to it; all labels are 0."""
        said = torch.tensor([[0.8, 0.2], [0.4, 0.6]]).expand(4, 2, 2)
        found = check([said, said], [torch.zeros(4, dtype=torch.int64)] * 2, None, seed=0)
        assert found is not None
        assert found.test["own"] == pytest.approx([-math.log(0.8), -math.log(0.4)])
        assert found.test["average"] == pytest.approx([-math.log(0.6)] * 2)
        assert found.test["fitted"] == pytest.approx([-math.log(0.8)] * 2, abs=1e-6)
        assert found.accuracy["own"] == [1.0, 0.0]
        assert "learned" not in found.test

    def test_there_is_none_where_a_client_has_one_image(self) -> None:
        one = torch.full((1, 1, 2), 0.5)
        assert check([one], [torch.zeros(1, dtype=torch.int64)], None, seed=0) is None

    def test_a_model_that_excludes_the_truth_costs_a_finite_loss(self) -> None:
        said = torch.tensor([[1.0, 0.0]]).expand(4, 1, 2)
        found = check([said], [torch.ones(4, dtype=torch.int64)], None, seed=0)
        assert found is not None
        assert math.isfinite(found.test["own"][0])
