"""The updates keep rows distributions, get to the optimum, and do what their papers say."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from matrices import (
    data_weights,
    divergence,
    gap,
    independent_loss,
    likelihood,
    objectives,
    predictions,
    simplex_rows,
    stream,
)
from scipy.optimize import minimize
from torch import Tensor

from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Divergence, Objective, SquaredDistance, SquaredError
from ktpfl_pipeline.core.matrix.teachers import mix_teachers, soft_predictions
from ktpfl_pipeline.core.matrix.updates import UPDATES, authors, default_step, eg, exact, frozen, pgd, project, softmax

SIMPLEX_UPDATES = ("eg", "pgd", "softmax", "exact", "authors", "frozen")
STEPS = {"eg": 0.5, "pgd": 0.05, "softmax": 0.5, "exact": 1.0, "authors": 1.0, "frozen": 0.0}


class Shifted:
    """An objective whose gradient has a constant added to each row."""

    def __init__(self, objective: Divergence, constant: Tensor) -> None:
        self.objective, self.constant = objective, constant

    def value(self, c: Tensor) -> Tensor:
        return self.objective.value(c)

    def gradient(self, c: Tensor) -> Tensor:
        return self.objective.gradient(c) + self.constant[:, None]


class TestUpdates:
    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax"])
    def test_the_plus_one_of_the_gradient_does_not_matter(self, update: str) -> None:
        """It adds the same number to a whole row."""
        objective, c = divergence(6), simplex_rows(6)
        without = Shifted(objective, -objective.weights)
        one, other = (UPDATES[update](o, c, 0.3, 1) for o in (objective, without))
        assert torch.allclose(one, other, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_rows_stay_distributions(self, update: str) -> None:
        """For gentle steps and for wild ones, for one and for many."""
        cases = itertools.product(((2, 0.0), (5, 0.7), (8, 3.0)), (1.0, 100.0), (1, 50))
        for case in cases:
            (n, rho), scale, steps = case
            if steps > 1 and update in ("exact", "frozen"):
                continue  # they take no number of steps
            objective: Objective = divergence(n, rho=rho)
            if update == "authors":
                objective = SquaredError(divergence(n).soft, rho)
            c = UPDATES[update](objective, simplex_rows(n), scale * STEPS[update], steps)
            assert (c.sum(dim=1) - 1).abs().max() < 1e-12, case
            assert c.min() >= 0, case
            assert c.dtype == torch.float64

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_the_start_is_left_as_it_was(self, update: str) -> None:
        objective, c = divergence(4), simplex_rows(4)
        before = c.clone()
        UPDATES[update](objective, c, STEPS[update], 3)
        assert torch.equal(c, before)

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_permuting_clients_permutes_the_matrix(self, update: str) -> None:
        """One step to 1e-14, an iterated solver to 1e-6."""
        soft, weights, c = predictions(6, 30, 5), 6 * data_weights(6), simplex_rows(6)
        order = torch.randperm(6, generator=stream(4))
        objectives = [Divergence(s.log(), w, 0.7) for s, w in ((soft, weights), (soft[order], weights[order]))]
        if update == "authors":
            objectives = [SquaredError(s, 0.7) for s in (soft, soft[order])]
        start = c[order][:, order]
        one = UPDATES[update](objectives[0], c, STEPS[update], 1)[order][:, order]
        other = UPDATES[update](objectives[1], start, STEPS[update], 1)
        assert torch.allclose(one, other, rtol=0, atol=1e-6 if update == "exact" else 1e-14)

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_twins_get_equal_columns_and_rows(self, update: str) -> None:
        soft, weights = predictions(5, 30, 4), torch.full((5,), 1.0, dtype=torch.float64)
        soft[3] = soft[1]
        objective = SquaredError(soft, 0.7) if update == "authors" else Divergence(soft.log(), weights, 0.7)
        c = UPDATES[update](objective, uniform(5), STEPS[update], 20)
        assert torch.allclose(c[:, 1], c[:, 3], rtol=0, atol=1e-8)
        assert torch.allclose(c[1], c[3], rtol=0, atol=1e-8)
        if update != "frozen":
            assert c[1, 1] > c[1, 0]

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_equal_predictions_are_a_fixed_point(self, update: str) -> None:
        """Nobody has anything to teach; and one client alone has C = [[1]]."""
        for n in (1, 2, 7):
            soft = predictions(1, 20, 4).expand(n, -1, -1)
            objective = (
                SquaredError(soft, 0.7) if update == "authors" else Divergence(soft.log(), n * data_weights(n), 0.7)
            )
            c = UPDATES[update](objective, uniform(n), STEPS[update], 5)
            assert torch.allclose(c, torch.full((n, n), 1 / n, dtype=torch.float64), rtol=0, atol=1e-15), n

    def test_softmax_is_gradient_descent_on_logits(self) -> None:
        """The chain rule against autograd, and the step made of it."""
        objective, a = divergence(6), torch.randn(6, 6, generator=stream(3), dtype=torch.float64).requires_grad_()
        c = torch.softmax(a, dim=1)
        (expected,) = torch.autograd.grad(objective.value(c).sum(), a)
        c = c.detach()
        g = objective.gradient(c)
        assert torch.allclose(c * (g - (c * g).sum(dim=1, keepdim=True)), expected, rtol=0, atol=1e-10)
        stepped = torch.softmax(a.detach() - 0.3 * expected, dim=1)
        assert torch.allclose(softmax(objective, c, 0.3, 1), stepped, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "frozen"])
    def test_by_default_no_row_ever_rises(self, update: str) -> None:
        """With clients of 10 to 100 images, at random predictions and at pairs of twins.

        `exact` is in `test_descent`, and `authors` descends nothing. With a fixed step of 1 / (2 + 2 rho) `pgd` went
        back and forth between two matrices.
        """
        for n, rho in ((2, 0.0), (20, 0.0), (2, 0.7), (20, 2.0), (2, 100.0), (20, 100.0)):
            soft = predictions(n, 24, 6)
            for those in (soft, soft[torch.arange(n) // 2]):
                objective, c = Divergence(those.log(), n * data_weights(n), rho), uniform(n)
                value = objective.value(c)
                for _ in range(12):
                    c = UPDATES[update](objective, c, default_step(update, rho, objective), 1)
                    assert (objective.value(c) <= value + 1e-12).all(), (n, rho)
                    value = objective.value(c)

    def test_pgd_without_a_step_gets_where_exact_does(self) -> None:
        """Ten pairs of twins at rho 2, where a fixed step swung between 0.22 and 0.50 for the own weight."""
        objective = Divergence(predictions(20, 24, 6)[torch.arange(20) // 2].log(), torch.ones(20).double(), 2.0)
        found = [pgd(objective, uniform(20), None, steps) for steps in (30, 31)]
        for c in found:
            assert torch.allclose(c, exact(objective, uniform(20)), rtol=0, atol=2e-3)

    @pytest.mark.parametrize(("seed", "rho"), [(0, 0.0), (1, 0.7), (0, 20.0)])
    def test_descent(self, seed: int, rho: float) -> None:
        """Small `pgd` steps and `exact` never raise any row's objective."""
        objective, c = divergence(6, rho=rho, seed=seed), simplex_rows(6, seed)
        value = objective.value(c)
        for _ in range(50):
            c = pgd(objective, c, 1e-3, 1)
            assert (objective.value(c) <= value + 1e-12).all()
            value = objective.value(c)
        for limit in (1, 5, 20):
            solved = exact(objective, simplex_rows(6, seed), limit=limit)
            assert (objective.value(solved) <= objective.value(simplex_rows(6, seed)) + 1e-12).all()
        assert (objective.value(exact(objective, c)) <= value + 1e-12).all()

    def test_a_diverged_client_does_not_break_the_update(self) -> None:
        """Its NaN goes through, so that the engine can name the client; nothing raises on the way."""
        soft = predictions(4, 8, 3)
        soft[2] = torch.nan
        objective = Divergence(soft.log(), torch.ones(4, dtype=torch.float64), 0.7)
        for update in ("eg", "pgd", "softmax", "exact"):
            assert UPDATES[update](objective, uniform(4), 0.5, 2).shape == (4, 4)
        assert pgd(objective, uniform(4), 0.5, 2).isnan().any()


class TestExact:
    def test_without_the_pull_everyone_is_alone(self) -> None:
        """Rho = 0 has the solution C = I, with loss 0."""
        for n in (2, 5, 20):
            objective = divergence(n, b=32, rho=0.0)
            c = exact(objective, uniform(n), gap=1e-11)
            assert (c - torch.eye(n, dtype=torch.float64)).abs().max() < 1e-3, n
            assert objective.value(c).max() < 1e-10, n

    def test_a_strong_pull_leaves_equal_weights(self) -> None:
        """At rho = 1e6 the teacher is FedMD's average, and the deviation is proportional to 1/rho."""
        deviation = {}
        for rho in (1e3, 1e6):
            objective = divergence(4, b=32, lam=1.0, rho=rho)
            c = exact(objective, uniform(4), gap=1e-9)  # at rho = 1e6 rounding leaves 6e-11
            deviation[rho] = (c - 1 / 4).abs().max().item()
        assert deviation[1e6] < 1e-6
        assert deviation[1e3] / deviation[1e6] == pytest.approx(1e3, rel=0.02)
        average = objective.soft.mean(dim=0)
        assert (mix_teachers(c, objective.soft) - average).abs().max() < 1e-6

    def test_first_order_in_one_over_rho(self) -> None:
        """C = 1/N - (H' - rowmean H') / (2 rho), H' the KL part of the gradient at 1/N."""
        rho, start = 200.0, uniform(6)
        objective = divergence(6, b=64, rho=rho)
        h = Divergence(objective.log_soft, objective.weights, 0.0).gradient(start)
        expected = start - (h - h.mean(dim=1, keepdim=True)) / (2 * rho)
        c = exact(objective, start, gap=1e-13)
        assert (c - expected).norm() < 0.01 * (c - start).norm()

    @pytest.mark.parametrize(("n", "rho"), [(3, 0.7), (6, 0.1), (6, 2.0)])
    def test_agrees_with_scipy(self, n: int, rho: float) -> None:
        """Sequential quadratic programming of the first row and the last, on an independent loss."""
        objective = divergence(n, b=20, rho=rho)
        c = exact(objective, uniform(n))
        for row in (0, n - 1):

            def loss(x: list[float], row: int = row) -> float:
                others = c.clone()
                others[row] = torch.tensor(x, dtype=torch.float64)
                return independent_loss(others, objective.soft, objective.weights, rho).item()

            found = minimize(
                loss,
                [1 / n] * n,
                method="SLSQP",
                bounds=[(1e-9, 1)] * n,
                constraints={"type": "eq", "fun": lambda x: sum(x) - 1},
                options={"ftol": 1e-12, "maxiter": 200},
            )
            assert found.success
            assert (c[row] - torch.as_tensor(found.x)).abs().max() < 1e-6
            assert loss(c[row].tolist()) <= found.fun + 1e-9

    @pytest.mark.parametrize("kind", ["divergence", "squared error", "likelihood"])
    def test_every_row_has_its_certificate(self, kind: str) -> None:
        """Soft predictions and certain ones, weak pulls and strong ones: optimal to 1e-9 by the duality gap."""
        for case in itertools.product((1, 2, 3, 6), (0.0, 0.1, 100.0), (0.3, 30.0)):
            n, rho, spread = case
            objective = objectives(n, rho, spread)[kind]
            c = exact(objective, uniform(n))
            assert gap(objective, c).max() <= 1e-9, case
            assert (c.sum(dim=1) - 1).abs().max() < 1e-12, case

    def test_the_certificate_is_what_was_asked_for(self) -> None:
        objective = divergence(6, b=32)
        for wanted in (1e-2, 1e-5, 1e-11):
            found = gap(objective, exact(objective, uniform(6), gap=wanted)).max()
            assert wanted / 1e3 < found <= wanted  # reached, and hardly more than that

    @pytest.mark.parametrize("kind", ["divergence", "squared error", "likelihood"])
    def test_no_point_of_a_grid_is_better(self, kind: str) -> None:
        """N = 2 and 3: the whole simplex in steps of 1/20, with the row's value alone, for sharp and soft ones."""
        for case in ((2, 0.0, 0.3), (2, 0.7, 3.0), (3, 0.1, 30.0), (3, 2.0, 0.3), (3, 0.0, 3.0)):
            n, rho, spread = case
            objective = objectives(n, rho, spread)[kind]
            found = objective.value(exact(objective, uniform(n)))
            grid = [point for point in itertools.product(range(21), repeat=n) if sum(point) == 20]
            points = torch.tensor(grid, dtype=torch.float64) / 20
            values = torch.stack([objective.value(point.expand(n, n)) for point in points])  # (points, N)
            assert (found <= values.min(dim=0).values + 1e-9).all(), case

    @pytest.mark.parametrize(("n", "rho"), [(2, 0.1), (3, 0.7), (6, 2.0)])
    def test_agrees_with_scipy_on_the_likelihood(self, n: int, rho: float) -> None:
        objective = likelihood(n, 20, rho)
        c = exact(objective, uniform(n))
        for row in range(n):
            own = objective.probabilities[row, : int(objective.samples[row])].numpy()
            weight = objective.weights[row].item()

            def loss(x: Any, own: Any = own, weight: float = weight) -> float:
                return float(-weight * np.log(own @ x).mean() + rho * ((x - 1 / n) ** 2).sum())

            found = minimize(
                loss,
                np.full(n, 1 / n),
                method="SLSQP",
                bounds=[(1e-9, 1)] * n,
                constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
                options={"ftol": 1e-13, "maxiter": 200},
            )
            assert found.success
            assert (c[row] - torch.as_tensor(found.x)).abs().max() < 1e-4
            assert loss(c[row].numpy()) <= found.fun + 1e-9

    @pytest.mark.parametrize("kind", ["divergence", "squared error", "likelihood"])
    def test_a_huge_pull_leaves_equal_weights(self, kind: str) -> None:
        objective = objectives(5, 1e7)[kind]
        for start in (uniform(5), simplex_rows(5)):
            c = exact(objective, start)
            assert (c - 1 / 5).abs().max() < 1e-6

    def test_any_first_step_will_do(self) -> None:
        objective = divergence(6, b=32)
        for step in (1e-4, 1e4):
            assert gap(objective, exact(objective, uniform(6), step)).max() <= 1e-9, step

    def test_agrees_with_many_small_eg_steps(self) -> None:
        objective = divergence(6, b=32, rho=0.7)
        small = eg(objective, uniform(6), 0.1, 1000)
        for start in (uniform(6), simplex_rows(6)):
            c = exact(objective, start)
            assert (c - small).abs().max() < 1e-4
            assert gap(objective, c).max() <= 1e-9

    def test_is_exact_whatever_the_number_of_steps(self) -> None:
        objective = divergence(6, b=32)
        few = UPDATES["exact"](objective, uniform(6), 0.5, 1)
        assert gap(objective, few).max() <= 1e-9

    def test_ten_eg_steps_are_near(self) -> None:
        """From 1/N at N = 20, 10 steps of 0.5 come within 1e-2 of the optimum, 300 within 1e-3."""
        objective = Divergence(predictions(20, 64, 10).log(), torch.ones(20, dtype=torch.float64), 0.7)
        best = exact(objective, uniform(20), gap=1e-6)
        error = [(eg(objective, uniform(20), 0.5, n) - best).abs().max() for n in (10, 300)]
        assert error[0] < 1e-2
        assert error[1] < 1e-3


def distance(flat: Tensor, weights: Tensor, rho: float) -> SquaredDistance:
    """The objective of models with these numbers, (N, D), in units of their mean distance."""
    centred = flat - flat.mean(dim=0)
    mean = torch.cdist(flat, flat).square().sum() / (len(flat) * (len(flat) - 1))
    return SquaredDistance(centred @ centred.T / mean, weights, rho)


def with_an_outlier(n: int, weight: float, rho: float) -> SquaredDistance:
    """The same, of n models one of which is ten times as far away as the others are from each other."""
    flat = torch.randn(n, 200, generator=stream(4), dtype=torch.float64)
    flat[0] *= 10.0
    return distance(flat, torch.full((n,), weight, dtype=torch.float64), rho)


def rises(objective: Objective, step: float | Tensor, steps: int = 60) -> float:
    """The most by which one of so many EG steps from equal weights raises any row's objective."""
    c, values = uniform(len(objective.weights)), []
    for _ in range(steps):
        values.append(objective.value(c))
        c = eg(objective, c, step, 1)
    return torch.stack(values).diff(dim=0).max().item()


class TestStep:
    """A step of 2 / (2 + rho) does not oscillate, whatever rho is."""

    RHOS = (0.1, 0.7, 2.0, 10.0, 100.0)

    @pytest.mark.parametrize("rho", RHOS)
    def test_the_divergence_never_rises(self, rho: float) -> None:
        for n, spread in itertools.product((2, 20), (0.3, 3.0, 30.0)):
            objective = Divergence(predictions(n, 24, 6, 1, spread).log(), n * data_weights(n), rho)
            assert rises(objective, 2 / (2 + rho)) < 1e-12, (n, spread)

    @pytest.mark.parametrize("rho", RHOS)
    def test_nor_does_the_likelihood(self, rho: float) -> None:
        for n, spread in itertools.product((2, 20), (0.3, 3.0)):
            assert rises(likelihood(n, rho=rho, spread=spread), 2 / (2 + rho)) < 1e-12, (n, spread)

    @pytest.mark.parametrize("rho", RHOS)
    def test_nor_does_the_distance_of_models_one_of_which_is_far_from_the_others(self, rho: float) -> None:
        for n, weight in itertools.product((2, 20, 100), (0.3, 1.0, 9.0)):
            objective = with_an_outlier(n, weight, rho)
            assert rises(objective, default_step("eg", rho, objective)) < 1e-12, (n, weight)

    def test_with_the_step_of_the_divergence_the_distance_would_rise(self) -> None:
        assert rises(with_an_outlier(20, 3.0, 8.0), 2 / (2 + 8)) > 0.1

    def test_of_models_that_are_about_as_far_from_each_other_it_is_the_same(self) -> None:
        flat = torch.randn(20, 200, generator=stream(5), dtype=torch.float64)
        objective = distance(flat, torch.ones(20, dtype=torch.float64), 2.0)
        assert torch.equal(default_step("eg", 2.0, objective), torch.full((20, 1), 0.5, dtype=torch.float64))

    def test_it_gets_there(self) -> None:
        for rho in self.RHOS:
            objective = divergence(6, b=24, rho=rho)
            c = eg(objective, uniform(6), 2 / (2 + rho), 300)
            assert (c - exact(objective, uniform(6))).abs().max() < 1e-3, rho

    def test_a_fixed_step_would_oscillate(self) -> None:
        assert rises(divergence(2, b=24, rho=100.0), 0.5) > 1.0


class TestScale:
    """Of 20 clients in ten pairs of twins; what lambda and the temperature decide."""

    @staticmethod
    def solve(temperature: float, lam: float) -> tuple[float, float, Tensor]:
        base = 3.0 * torch.randn(10, 1, 60, 10, generator=stream(0), dtype=torch.float64)
        noise = torch.randn(10, 2, 60, 10, generator=stream(1), dtype=torch.float64)
        soft = soft_predictions((base + noise).flatten(0, 1), temperature)
        objective = Divergence(soft.log(), torch.full((20,), lam / 20, dtype=torch.float64), 0.7)
        c = exact(objective, uniform(20), gap=1e-5)
        twins = c[torch.arange(20), torch.arange(20) ^ 1]
        return c.diag().mean().item(), twins.mean().item(), c

    def test_lambda_n_at_temperature_1_finds_the_twins(self) -> None:
        own, twin, c = self.solve(1.0, 20.0)
        assert own > 0.5
        assert own > twin > 0.2
        assert own + twin > 0.98
        assert (c.argsort(dim=1, descending=True)[:, 1] == (torch.arange(20) ^ 1)).all()

    def test_lambda_1_at_temperature_1_is_weak(self) -> None:
        own, twin, _ = self.solve(1.0, 1.0)
        assert 0.1 < twin < own < 0.3

    def test_lambda_1_at_temperature_10_is_fedmd(self) -> None:
        _, _, c = self.solve(10.0, 1.0)
        assert (c - 1 / 20).abs().max() < 0.01


class TestProjection:
    @pytest.mark.parametrize("m", [1, 2, 5, 50])
    def test_feasible_idempotent_and_nearest(self, m: int) -> None:
        for spread in (0.01, 1.0, 1000.0):
            v = spread * torch.randn(200, m, generator=stream(m), dtype=torch.float64)
            x = project(v)
            assert (x.sum(dim=1) - 1).abs().max() < 1e-12, spread
            assert x.min() >= 0
            assert torch.allclose(project(x), x, rtol=0, atol=1e-12), spread
            # (v - x).(e_j - x) <= 0 for every vertex e_j: no point of the simplex is nearer.
            inner = (v - x) - ((v - x) * x).sum(dim=1, keepdim=True)
            assert inner.max() < 1e-12 * max(1.0, spread), spread

    def test_by_hand(self) -> None:
        rows = [[0.5, 0.5, 0.5], [2.0, 0.0, 0.0], [0.8, 0.6, -3.0], [0.2, 0.3, 0.5], [-1.0, -1.0, -4.0]]
        expected = [[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0]]
        found = project(torch.tensor(rows, dtype=torch.float64))
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)

    def test_a_shift_of_a_row_does_not_matter(self) -> None:
        v = torch.randn(20, 6, generator=stream(0), dtype=torch.float64)
        assert torch.allclose(project(v + 3.0), project(v), rtol=0, atol=1e-14)

    def test_huge_entries_still_give_a_distribution(self) -> None:
        for size in (1e12, 1e100, 1e300):
            v = size * torch.randn(20, 6, generator=stream(0), dtype=torch.float64)
            x = project(v)
            assert torch.equal(x.argmax(dim=1), v.argmax(dim=1)), size
            assert (x.sum(dim=1) - 1).abs().max() < 1e-12, size


def released_update(raw: list[Tensor], weight: Tensor, penalty: float) -> Tensor:
    """The released update of the authors: row by row, number by number, with autograd."""
    n = len(raw)
    stepped = []
    for student in range(n):
        row = weight[student].clone().requires_grad_()
        teacher = torch.zeros_like(raw[0])
        for m in range(n):
            teacher = teacher + row[m] * raw[m]
        squares, count = 0.0, 0
        for sample in range(raw[0].shape[0]):
            for label in range(raw[0].shape[1]):
                squares = squares + (teacher[sample, label] - raw[student][sample, label]) ** 2
                count += 1
        pull = sum((row[m] - 1 / n) ** 2 for m in range(n)) / n
        (gradient,) = torch.autograd.grad(squares / count + penalty * pull, row)
        average = sum(abs(value) for value in gradient.tolist()) / n
        rate = 1.0
        for _ in range(5):
            if average > 0.01:
                average, rate = average / 5, rate / 5
            if average < 0.01:
                average, rate = average * 5, rate * 5
        moved = [value - rate * slope for value, slope in zip(row.tolist(), gradient.tolist(), strict=True)]
        exponentials = [math.exp(5 * value) for value in moved]
        stepped.append([value / sum(exponentials) for value in exponentials])
    return torch.tensor(stepped, dtype=torch.float64)


class TestAuthors:
    @pytest.mark.parametrize(
        ("n", "penalty", "temperature"), [(2, 0.7, 1.0), (5, 0.7, 10.0), (8, 3.0, 1.0), (4, 0.0, 30.0)]
    )
    def test_matches_a_transcription_over_rounds(self, n: int, penalty: float, temperature: float) -> None:
        expected = found = uniform(n)
        for t in range(3):
            logits = 3 * torch.randn(n, 6, 4, generator=stream(10 + t), dtype=torch.float64)
            soft = soft_predictions(logits, temperature)
            expected = released_update(list(soft), expected, penalty)
            found = authors(SquaredError(soft, penalty), found, 1.0, 1)
            assert (found - expected).abs().max() < 1e-12

    @pytest.mark.parametrize("temperature", [1.0, 10.0])
    def test_the_step_is_forced_into_its_band(self, temperature: float) -> None:
        """Before the softmax every row moves by 0.01 to 0.05 per entry, whatever its gradient."""
        soft = soft_predictions(3 * torch.randn(6, 30, 4, generator=stream(0), dtype=torch.float64), temperature)
        c = simplex_rows(6)
        moved = authors(SquaredError(soft, 0.7), c, 1.0, 1).log() / 5  # the step, up to a constant a row
        step = moved - c
        gradient = SquaredError(soft, 0.7).gradient(c)
        for row, direction in zip(step - step.mean(dim=1, keepdim=True), gradient, strict=True):
            centred = direction - direction.mean()
            size = -(row @ centred) / (centred @ centred)
            assert torch.allclose(row, -size * centred, rtol=0, atol=1e-12)
            assert 0.01 - 1e-12 <= size * direction.abs().mean() <= 0.05 + 1e-12

    def test_softmax_of_five_forgets(self) -> None:
        """With nothing to learn, a matrix near 1/20 keeps 5/20 of its deviation."""
        soft = predictions(1, 10, 4).expand(20, -1, -1)
        deviation = 1e-4 * (simplex_rows(20) - 1 / 20)
        c = authors(SquaredError(soft, 0.0), 1 / 20 + deviation, 1.0, 1)
        assert (c - 1 / 20 - deviation / 4).abs().max() < 1e-3 * deviation.abs().max()


def test_frozen_returns_the_very_matrix() -> None:
    c = simplex_rows(4)
    assert frozen(divergence(4), c, 0.5, 10) is c
