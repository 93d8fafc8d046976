"""The invariants of the knowledge coefficients, numbered as in the project's algorithm reference (section 15.1)."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import toy
from ktpfl_pipeline.core.coefficients import UPDATES, Divergence, Likelihood, Objective, SquaredError
from scipy.optimize import minimize
from torch import Tensor

from ktpfl_pipeline.core import coefficients
from ktpfl_pipeline.core.errors import InputError

SIMPLEX_UPDATES = ("eg", "pgd", "softmax", "exact", "authors", "frozen")
STEPS = {"eg": 0.5, "pgd": 0.05, "softmax": 0.5, "exact": 1.0, "authors": 1.0, "frozen": 0.0}


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def predictions(n: int, b: int, k: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    """Soft predictions of n clients whose logits have the standard deviation `spread`."""
    return coefficients.soft_predictions(spread * torch.randn(n, b, k, generator=stream(seed), dtype=torch.float64))


def simplex_rows(n: int, seed: int = 0) -> Tensor:
    return torch.softmax(torch.randn(n, n, generator=stream(seed + 1), dtype=torch.float64), dim=1)


def data_weights(n: int, seed: int = 0) -> Tensor:
    sizes = torch.randint(10, 100, (n,), generator=stream(seed + 2)).double()
    return sizes / sizes.sum()


def divergence(
    n: int = 5, b: int = 16, k: int = 4, lam: float | None = None, rho: float = 0.7, seed: int = 0
) -> Divergence:
    lam = n if lam is None else lam
    return Divergence(predictions(n, b, k, seed), lam * data_weights(n, seed), rho)


def likelihood(n: int = 5, v: int = 16, rho: float = 0.7, seed: int = 0, spread: float = 3.0) -> Likelihood:
    """Every client has its own v images, of which the last ones of some clients are missing: ones."""
    probabilities = predictions(n * v, n, 4, seed, spread)[..., 0].view(n, v, n).clone()  # class 0 is the true one
    images = torch.tensor([v - (row % 3) * (v // 4) for row in range(n)], dtype=torch.float64)
    for row, own in enumerate(images.int().tolist()):
        probabilities[row, own:] = 1.0
    return Likelihood(probabilities, images, n * data_weights(n, seed), rho)


def objectives(n: int, rho: float, spread: float = 3.0, seed: int = 0) -> dict[str, Objective]:
    """One of each kind, whose predictions are near uniform for a small `spread` and near certain for a large one."""
    soft = predictions(n, 24, 6, seed, spread)
    return {
        "divergence": Divergence(soft, n * data_weights(n, seed), rho),
        "squared error": SquaredError(soft, rho),
        "likelihood": likelihood(n, 24, rho, seed, spread),
    }


def independent_loss(c: Tensor, soft: Tensor, weights: Tensor, rho: float) -> Tensor:
    """lambda sum_n a_n KL(p_n || s_n) + rho ||C - 1/N||^2 (section 2.3), client by client."""
    n = len(c)
    total = rho * ((c - 1 / n) ** 2).sum()
    for student in range(n):
        teacher = sum(c[student, m] * soft[m] for m in range(n))
        kl = (teacher * (teacher.log() - soft[student].log())).sum(dim=1).mean()
        total = total + weights[student] * kl
    return total


def gap(objective: Objective, c: Tensor) -> Tensor:
    """The certificate of each row: no further than this from its optimal value."""
    g = objective.gradient(c)
    return (c * g).sum(dim=1) - g.min(dim=1).values


class TestByHand:
    """N = 2 clients, B = 1 sample, K = 2 classes, s_1 = (0.8, 0.2), s_2 = (0.2, 0.8), C = 1/2 everywhere.

    The teacher is (1/2, 1/2). KL = ln(0.625)/2 + ln(2.5)/2 = 0.2231436. The gradient of client 1's row is
    H_11 = 0.8 ln 0.625 + 0.2 ln 2.5 + 1 = 0.8072552 and H_12 = 0.2 ln 0.625 + 0.8 ln 2.5 + 1 = 1.6390319.
    """

    objective = Divergence(
        torch.tensor([[[0.8, 0.2]], [[0.2, 0.8]]], dtype=torch.float64), torch.ones(2, dtype=torch.float64), 0.0
    )
    half = coefficients.uniform(2)

    def test_value(self) -> None:
        assert self.objective.value(self.half).tolist() == pytest.approx([0.2231435513, 0.2231435513], abs=1e-9)

    def test_gradient(self) -> None:
        found = self.objective.gradient(self.half)
        assert found[0].tolist() == pytest.approx([0.8072552, 1.6390319], abs=1e-7)
        assert found[1].tolist() == pytest.approx([1.6390319, 0.8072552], abs=1e-7)

    def test_one_eg_step(self) -> None:
        # c_11 / c_12 = exp(0.5 (1.6390319 - 0.8072552)) = exp(0.4158885), so c_11 = 0.6024990.
        c = coefficients.eg(self.objective, self.half, 0.5, 1)
        assert c[0].tolist() == pytest.approx([0.6024990, 0.3975010], abs=1e-6)
        assert c[1].tolist() == pytest.approx([0.3975010, 0.6024990], abs=1e-6)

    def test_one_pgd_step(self) -> None:
        # Off the mean of the row the gradient is -+0.4158885: c_11 = 1/2 + 0.1 x 0.4158885.
        c = coefficients.pgd(self.objective, self.half, 0.1, 1)
        assert c[0].tolist() == pytest.approx([0.5415888, 0.4584112], abs=1e-6)

    def test_one_softmax_step(self) -> None:
        # dL/dA_11 = c (g - <c, g>) = 1/2 (0.8072552 - 1.2231434) = -0.2079442; c_11 = sigmoid(2 x 1 x 0.2079442).
        c = coefficients.softmax(self.objective, self.half, 1.0, 1)
        assert c[0, 0].item() == pytest.approx(1 / (1 + math.exp(-2 * 0.2079442)), abs=1e-6)

    def test_the_pull_toward_equal_weights(self) -> None:
        c = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)
        pulled = Divergence(self.objective.soft, torch.zeros(2, dtype=torch.float64), rho=0.7)
        assert pulled.value(c).tolist() == pytest.approx([0.7 * (0.16 + 0.16), 0.0])
        assert pulled.gradient(c)[0].tolist() == pytest.approx([1.4 * 0.4, -1.4 * 0.4])

    def test_squared_error(self) -> None:
        # p_1 - s_1 = (-0.3, 0.3): mean square 0.09; rho x mean((0.1)^2, (0.1)^2) at c = (0.6, 0.4) adds 0.007.
        objective = SquaredError(self.objective.soft, 0.7)
        assert objective.value(self.half).tolist() == pytest.approx([0.09, 0.09])
        c = torch.tensor([[0.6, 0.4], [0.5, 0.5]], dtype=torch.float64)
        assert objective.value(c)[0].item() == pytest.approx(0.24**2 + 0.007)


SHAPES = list(itertools.product((1, 2, 5, 20), ((1, 2), (16, 10), (64, 62))))


@pytest.mark.parametrize("rows", ["simplex", "positive"])
@pytest.mark.parametrize(("n", "shape"), SHAPES, ids=str)
class TestGradient:
    """#1 and #2: the closed forms against autograd and torch's own KL."""

    @pytest.mark.parametrize(("lam", "rho"), [(1.0, 0.7), (20.0, 0.0), (0.0, 3.0)])
    def test_divergence(self, n: int, shape: tuple[int, int], rows: str, lam: float, rho: float) -> None:
        objective = divergence(n, *shape, lam=lam, rho=rho)
        c = self.start(n, rows).requires_grad_()
        loss = independent_loss(c, objective.soft, objective.weights, rho)
        (expected,) = torch.autograd.grad(loss, c)
        assert torch.allclose(objective.gradient(c.detach()), expected, rtol=0, atol=1e-10)
        assert objective.value(c.detach()).sum().item() == pytest.approx(loss.item(), abs=1e-12, rel=1e-13)

    def test_squared_error(self, n: int, shape: tuple[int, int], rows: str) -> None:
        soft, c = predictions(n, *shape), self.start(n, rows).requires_grad_()
        teachers = [sum(c[student, m] * soft[m] for m in range(n)) for student in range(n)]
        loss = sum(
            F.mse_loss(soft[m], teachers[m]) + 0.7 * F.mse_loss(c[m], torch.full_like(c[m], 1 / n)) for m in range(n)
        )
        (expected,) = torch.autograd.grad(loss, c)
        objective = SquaredError(soft, 0.7)
        assert torch.allclose(objective.gradient(c.detach()), expected, rtol=0, atol=1e-12)
        assert objective.value(c.detach()).sum().item() == pytest.approx(loss.item(), abs=1e-13)

    def test_kl_is_torchs(self, n: int, shape: tuple[int, int], rows: str) -> None:
        soft, c = predictions(n, *shape), self.start(n, rows)
        value = Divergence(soft, torch.ones(n, dtype=torch.float64), 0.0).value(c)
        for m, teacher in enumerate(coefficients.teachers(c, soft)):
            expected = F.kl_div(soft[m].log(), teacher, reduction="batchmean")
            assert value[m].item() == pytest.approx(expected.item(), abs=1e-14, rel=1e-14)

    @staticmethod
    def start(n: int, rows: str) -> Tensor:
        return simplex_rows(n) if rows == "simplex" else simplex_rows(n) * 2 + 0.1


class TestObjective:
    @pytest.mark.parametrize("n", [2, 5])
    def test_hessian(self, n: int) -> None:
        """#6: each row's Hessian is lambda a_n (1/B) sum_x S diag(1/p) S^T + 2 rho I; no eigenvalue below 2 rho."""
        objective, c = divergence(n, rho=0.7), simplex_rows(n)
        soft = objective.soft
        teachers = coefficients.teachers(c, soft)
        hessian = torch.autograd.functional.hessian(lambda c: objective.value(c).sum(), c)  # (N, N, N, N)
        jacobian = torch.autograd.functional.jacobian(objective.gradient, c)
        assert torch.allclose(hessian, jacobian, rtol=0, atol=1e-10)
        for row, other in itertools.product(range(n), range(n)):
            expected = torch.zeros(n, n, dtype=torch.float64)
            if row == other:  # the rows are independent
                products = torch.einsum("mbk,bk,jbk->mj", soft, 1 / teachers[row], soft) / soft.shape[1]
                expected = objective.weights[row] * products + 1.4 * torch.eye(n, dtype=torch.float64)
                assert torch.linalg.eigvalsh(hessian[row, :, row]).min() >= 1.4 - 1e-10
            assert torch.allclose(hessian[row, :, other], expected, rtol=0, atol=1e-10)

    @pytest.mark.parametrize("memory", [1, 2 * 5 * 33 * 4 * 8, 10**6])
    def test_blocks_of_rows_change_nothing_but_rounding(self, memory: int) -> None:
        """One row at a time, two, and all seven."""
        whole = divergence(7, 33, 4)
        blocked = Divergence(whole.soft, whole.weights, whole.rho, memory)
        c = simplex_rows(7)
        assert len(blocked._blocks) == {1: 7, 10**6: 1}.get(memory, 4)
        assert torch.allclose(blocked.value(c), whole.value(c), rtol=0, atol=1e-13)
        assert torch.allclose(blocked.gradient(c), whole.gradient(c), rtol=0, atol=1e-13)

    def test_all_clients_in_one_block_are_as_without_blocks_to_the_bit(self) -> None:
        """The bound of twenty clients of the paper is far below the default."""
        assert len(divergence(20, 3000, 10)._blocks) == 1

    def test_the_order_of_samples_and_classes_does_not_matter(self) -> None:
        """#12."""
        soft, weights, c = predictions(5, 40, 7), data_weights(5), simplex_rows(5)
        samples, classes = torch.randperm(40, generator=stream(1)), torch.randperm(7, generator=stream(2))
        for make in (lambda s: Divergence(s, weights, 0.7), lambda s: SquaredError(s, 0.7)):
            gradient = make(soft).gradient(c)
            assert torch.allclose(make(soft[:, samples]).gradient(c), gradient, rtol=0, atol=1e-14)
            assert torch.allclose(make(soft[:, :, classes]).gradient(c), gradient, rtol=0, atol=1e-14)

    def test_certain_predictions_stay_finite(self) -> None:
        """Probabilities that underflow to 0 are clamped inside the logarithms."""
        logits = torch.zeros(3, 4, 5, dtype=torch.float64)
        logits[0, :, 0], logits[1, :, 1], logits[2, :, 2] = 1e4, 1e4, 1e4
        objective = Divergence(coefficients.soft_predictions(logits), torch.ones(3, dtype=torch.float64), 0.7)
        for c in (coefficients.uniform(3), torch.eye(3, dtype=torch.float64)):
            assert objective.value(c).isfinite().all()
            assert objective.gradient(c).isfinite().all()
        for update in ("eg", "pgd", "softmax", "exact"):
            c = UPDATES[update](objective, coefficients.uniform(3), 0.5, 10)
            assert torch.allclose(c.sum(dim=1), torch.ones(3, dtype=torch.float64))
        assert torch.allclose(objective.value(torch.eye(3, dtype=torch.float64)), torch.tensor(0.7 * 6 / 9).double())


class TestLikelihood:
    def test_by_hand(self) -> None:
        """Client 1 has two images, client 2 one, and the equal mixture gives their labels 0.5, 0.5 and 0.375.

        So NLL_1 = ln 2 and NLL_2 = -ln 0.375, halved by a weight of 1/2. The gradient of row 1 is
        -((0.8, 0.2) / 0.5 + (0.4, 0.6) / 0.5) / 2 = (-1.2, -0.8); that of row 2, half of -(0.5, 0.25) / 0.375 and of
        the -1 of the image that is not there.
        """
        probabilities = torch.tensor([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.25], [1.0, 1.0]]], dtype=torch.float64)
        images, weights = torch.tensor([[2.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
        half = coefficients.uniform(2)
        objective = Likelihood(probabilities, images, weights, 0.0)
        assert objective.value(half).tolist() == pytest.approx([math.log(2.0), -0.5 * math.log(0.375)], abs=1e-15)
        expected = torch.tensor([[-1.2, -0.8], [-7 / 6, -5 / 6]], dtype=torch.float64)
        assert torch.allclose(objective.gradient(half), expected, rtol=0, atol=1e-15)
        c = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)
        pulled = Likelihood(probabilities, images, torch.zeros(2, dtype=torch.float64), 0.7)
        assert pulled.value(c).tolist() == pytest.approx([0.7 * 0.32, 0.0], abs=1e-15)
        assert pulled.gradient(c)[0].tolist() == pytest.approx([0.56, -0.56], abs=1e-15)

    @pytest.mark.parametrize("spread", [0.3, 3.0])
    @pytest.mark.parametrize(("n", "rho"), [(1, 0.7), (2, 0.0), (5, 0.7), (20, 3.0)])
    def test_against_autograd(self, n: int, rho: float, spread: float) -> None:
        """Client by client and image by image, in float64; missing images add one number to a whole row."""
        objective, c = likelihood(n, rho=rho, spread=spread), simplex_rows(n).requires_grad_()
        values, constants = [], []
        for row in range(n):
            own = int(objective.images[row])
            mixtures = torch.stack(
                [sum(c[row, m] * objective.probabilities[row, i, m] for m in range(n)) for i in range(own)]
            )
            values.append(-objective.weights[row] * mixtures.log().mean() + rho * ((c[row] - 1 / n) ** 2).sum())
            constants.append(-objective.weights[row] * (16 - own) / own)
        (expected,) = torch.autograd.grad(sum(values), c)
        expected = expected + torch.stack(constants)[:, None]
        c = c.detach()
        assert torch.allclose(objective.gradient(c), expected, rtol=0, atol=1e-12)
        assert torch.allclose(objective.value(c), torch.stack(values).detach(), rtol=0, atol=1e-13)

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "exact"])
    def test_images_that_are_not_there_change_no_update(self, update: str) -> None:
        short = likelihood(4)
        ones = torch.ones(4, 9, 4, dtype=torch.float64)
        padded = Likelihood(torch.cat([short.probabilities, ones], dim=1), short.images, short.weights, short.rho)
        one, other = (UPDATES[update](o, simplex_rows(4), STEPS[update], 5) for o in (short, padded))
        assert torch.allclose(one, other, rtol=0, atol=1e-6 if update == "exact" else 1e-13)

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "exact"])
    def test_rows_stay_distributions(self, update: str) -> None:
        for scale in (1.0, 100.0):
            c = UPDATES[update](likelihood(6, rho=0.1), simplex_rows(6), scale * STEPS[update], 20)
            assert (c.sum(dim=1) - 1).abs().max() < 1e-12
            assert c.min() >= 0

    def test_permuting_clients_permutes_the_matrix(self) -> None:
        objective, order = likelihood(6), torch.randperm(6, generator=stream(4))
        moved = Likelihood(
            objective.probabilities[order][:, :, order], objective.images[order], objective.weights[order], 0.7
        )
        one = coefficients.eg(objective, simplex_rows(6), 0.5, 5)[order][:, order]
        other = coefficients.eg(moved, simplex_rows(6)[order][:, order], 0.5, 5)
        assert torch.allclose(one, other, rtol=0, atol=1e-14)

    def test_the_only_model_that_knows_is_listened_to(self) -> None:
        """Model 2 is certain and right on everybody's images, the others guess."""
        probabilities = torch.full((3, 10, 3), 0.1, dtype=torch.float64)
        probabilities[:, :, 2] = 1.0
        objective = Likelihood(probabilities, torch.full((3,), 10.0).double(), torch.ones(3).double(), 0.0)
        c = coefficients.exact(objective, coefficients.uniform(3))
        assert c[:, 2].min() > 1 - 1e-8

    def test_where_everybody_is_wrong_it_stays_finite(self) -> None:
        objective = Likelihood(torch.zeros(3, 4, 3).double(), torch.full((3,), 4.0).double(), torch.ones(3).double(), 0)
        for update in ("eg", "pgd", "softmax", "exact"):
            c = UPDATES[update](objective, coefficients.uniform(3), 0.5, 3)
            assert torch.allclose(c, coefficients.uniform(3), rtol=0, atol=1e-15)
        assert objective.value(c).isfinite().all()


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
        """#3: it adds the same number to a whole row."""
        objective, c = divergence(6), simplex_rows(6)
        without = Shifted(objective, -objective.weights)
        one, other = (UPDATES[update](o, c, 0.3, 1) for o in (objective, without))
        assert torch.allclose(one, other, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("steps", [1, 10, 200])
    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    @pytest.mark.parametrize(("n", "rho"), [(2, 0.0), (5, 0.7), (20, 3.0)])
    def test_rows_stay_distributions(self, update: str, steps: int, n: int, rho: float) -> None:
        """#5, for gentle steps and for wild ones."""
        objective: Objective = divergence(n, rho=rho)
        if update == "authors":
            objective = SquaredError(divergence(n).soft, rho)
        for scale in (1.0, 100.0):
            c = UPDATES[update](objective, simplex_rows(n), scale * STEPS[update], steps)
            assert (c.sum(dim=1) - 1).abs().max() < 1e-12
            assert c.min() >= 0
            assert c.dtype == torch.float64

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_the_start_is_left_as_it_was(self, update: str) -> None:
        objective, c = divergence(4), simplex_rows(4)
        before = c.clone()
        UPDATES[update](objective, c, STEPS[update], 3)
        assert torch.equal(c, before)

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_permuting_clients_permutes_the_matrix(self, update: str) -> None:
        """#11: one step to 1e-14, an iterated solver to 1e-6."""
        soft, weights, c = predictions(6, 30, 5), 6 * data_weights(6), simplex_rows(6)
        order = torch.randperm(6, generator=stream(4))
        objectives = [Divergence(s, w, 0.7) for s, w in ((soft, weights), (soft[order], weights[order]))]
        if update == "authors":
            objectives = [SquaredError(s, 0.7) for s in (soft, soft[order])]
        start = c[order][:, order]
        one = UPDATES[update](objectives[0], c, STEPS[update], 1)[order][:, order]
        other = UPDATES[update](objectives[1], start, STEPS[update], 1)
        assert torch.allclose(one, other, rtol=0, atol=1e-6 if update == "exact" else 1e-14)

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    def test_twins_get_equal_columns_and_rows(self, update: str) -> None:
        """#13."""
        soft, weights = predictions(5, 30, 4), torch.full((5,), 1.0, dtype=torch.float64)
        soft[3] = soft[1]
        objective = SquaredError(soft, 0.7) if update == "authors" else Divergence(soft, weights, 0.7)
        c = UPDATES[update](objective, coefficients.uniform(5), STEPS[update], 20)
        assert torch.allclose(c[:, 1], c[:, 3], rtol=0, atol=1e-8)
        assert torch.allclose(c[1], c[3], rtol=0, atol=1e-8)
        if update != "frozen":
            assert c[1, 1] > c[1, 0]

    @pytest.mark.parametrize("update", SIMPLEX_UPDATES)
    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_equal_predictions_are_a_fixed_point(self, update: str, n: int) -> None:
        """#14: nobody has anything to teach; and one client alone has C = [[1]]."""
        soft = predictions(1, 20, 4).expand(n, -1, -1)
        objective = SquaredError(soft, 0.7) if update == "authors" else Divergence(soft, n * data_weights(n), 0.7)
        c = UPDATES[update](objective, coefficients.uniform(n), STEPS[update], 5)
        assert torch.allclose(c, torch.full((n, n), 1 / n, dtype=torch.float64), rtol=0, atol=1e-15)

    def test_softmax_is_gradient_descent_on_logits(self) -> None:
        """#15: the chain rule against autograd, and the step made of it."""
        objective, a = divergence(6), torch.randn(6, 6, generator=stream(3), dtype=torch.float64).requires_grad_()
        c = torch.softmax(a, dim=1)
        (expected,) = torch.autograd.grad(objective.value(c).sum(), a)
        c = c.detach()
        g = objective.gradient(c)
        assert torch.allclose(c * (g - (c * g).sum(dim=1, keepdim=True)), expected, rtol=0, atol=1e-10)
        stepped = torch.softmax(a.detach() - 0.3 * expected, dim=1)
        assert torch.allclose(coefficients.softmax(objective, c, 0.3, 1), stepped, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("rho", [0.0, 0.7, 20.0])
    def test_descent(self, seed: int, rho: float) -> None:
        """#16: small `pgd` steps and `exact` never raise any row's objective."""
        objective, c = divergence(6, rho=rho, seed=seed), simplex_rows(6, seed)
        value = objective.value(c)
        for _ in range(50):
            c = coefficients.pgd(objective, c, 1e-3, 1)
            assert (objective.value(c) <= value + 1e-12).all()
            value = objective.value(c)
        for limit in (1, 5, 20):
            solved = coefficients.exact(objective, simplex_rows(6, seed), limit=limit)
            assert (objective.value(solved) <= objective.value(simplex_rows(6, seed)) + 1e-12).all()
        assert (objective.value(coefficients.exact(objective, c)) <= value + 1e-12).all()

    def test_a_diverged_client_does_not_break_the_update(self) -> None:
        """Its NaN goes through, so that the engine can name the client; nothing raises on the way."""
        soft = predictions(4, 8, 3)
        soft[2] = torch.nan
        objective = Divergence(soft, torch.ones(4, dtype=torch.float64), 0.7)
        for update in ("eg", "pgd", "softmax", "exact"):
            assert UPDATES[update](objective, coefficients.uniform(4), 0.5, 2).shape == (4, 4)
        assert coefficients.pgd(objective, coefficients.uniform(4), 0.5, 2).isnan().any()


class TestExact:
    @pytest.mark.parametrize("n", [2, 5, 20])
    def test_without_the_pull_everyone_is_alone(self, n: int) -> None:
        """#9: rho = 0 has the solution C = I, with loss 0."""
        objective = divergence(n, b=32, rho=0.0)
        c = coefficients.exact(objective, coefficients.uniform(n), gap=1e-11)
        assert (c - torch.eye(n, dtype=torch.float64)).abs().max() < 1e-3
        assert objective.value(c).max() < 1e-10

    def test_a_strong_pull_leaves_equal_weights(self) -> None:
        """#7: at rho = 1e6 the teacher is FedMD's average, and the deviation is proportional to 1/rho."""
        deviation = {}
        for rho in (1e3, 1e6):
            objective = divergence(8, b=32, lam=1.0, rho=rho)
            c = coefficients.exact(objective, coefficients.uniform(8), gap=1e-13)
            deviation[rho] = (c - 1 / 8).abs().max().item()
        assert deviation[1e6] < 1e-6
        assert deviation[1e3] / deviation[1e6] == pytest.approx(1e3, rel=0.02)
        average = objective.soft.mean(dim=0)
        assert (coefficients.teachers(c, objective.soft) - average).abs().max() < 1e-6

    def test_first_order_in_one_over_rho(self) -> None:
        """#10: C = 1/N - (H' - rowmean H') / (2 rho), H' the KL part of the gradient at 1/N."""
        rho, start = 200.0, coefficients.uniform(6)
        objective = divergence(6, b=64, rho=rho)
        h = Divergence(objective.soft, objective.weights, 0.0).gradient(start)
        expected = start - (h - h.mean(dim=1, keepdim=True)) / (2 * rho)
        c = coefficients.exact(objective, start, gap=1e-13)
        assert (c - expected).norm() < 0.01 * (c - start).norm()

    @pytest.mark.parametrize(("n", "rho"), [(3, 0.7), (6, 0.1), (6, 2.0)])
    def test_agrees_with_scipy(self, n: int, rho: float) -> None:
        """Sequential quadratic programming, row by row, on the independent loss of this file."""
        objective = divergence(n, b=20, rho=rho)
        c = coefficients.exact(objective, coefficients.uniform(n))
        for row in range(n):

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
    @pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
    @pytest.mark.parametrize("rho", [0.0, 0.1, 2.0, 100.0])
    def test_every_row_has_its_certificate(self, kind: str, spread: float, rho: float) -> None:
        """Soft predictions and certain ones, weak pulls and strong ones: optimal to 1e-9 by the duality gap."""
        for n in (1, 2, 3, 6):
            objective = objectives(n, rho, spread)[kind]
            c = coefficients.exact(objective, coefficients.uniform(n))
            assert gap(objective, c).max() <= 1e-9
            assert (c.sum(dim=1) - 1).abs().max() < 1e-12

    def test_the_certificate_is_what_was_asked_for(self) -> None:
        objective = divergence(6, b=32)
        for wanted in (1e-2, 1e-5, 1e-11):
            found = gap(objective, coefficients.exact(objective, coefficients.uniform(6), gap=wanted)).max()
            assert wanted / 1e3 < found <= wanted  # reached, and hardly more than that

    @pytest.mark.parametrize("kind", ["divergence", "squared error", "likelihood"])
    @pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
    def test_no_point_of_a_grid_is_better(self, kind: str, spread: float) -> None:
        """N = 2 and 3: the whole simplex in steps of 1/100, with the row's value alone, for sharp and soft ones."""
        for n, rho in ((2, 0.0), (2, 0.7), (3, 0.1), (3, 2.0)):
            objective = objectives(n, rho, spread)[kind]
            found = objective.value(coefficients.exact(objective, coefficients.uniform(n)))
            grid = [point for point in itertools.product(range(101), repeat=n) if sum(point) == 100]
            points = torch.tensor(grid, dtype=torch.float64) / 100
            values = torch.stack([objective.value(point.expand(n, n)) for point in points])  # (points, N)
            assert (found <= values.min(dim=0).values + 1e-9).all()

    @pytest.mark.parametrize(("n", "rho"), [(2, 0.1), (3, 0.7), (6, 2.0)])
    def test_agrees_with_scipy_on_the_likelihood(self, n: int, rho: float) -> None:
        objective = likelihood(n, 20, rho)
        c = coefficients.exact(objective, coefficients.uniform(n))
        for row in range(n):
            own = objective.probabilities[row, : int(objective.images[row])].numpy()
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
        for start in (coefficients.uniform(5), simplex_rows(5)):
            c = coefficients.exact(objective, start)
            assert (c - 1 / 5).abs().max() < 1e-6

    @pytest.mark.parametrize("step", [1e-4, 1e4])
    def test_any_first_step_will_do(self, step: float) -> None:
        objective = divergence(6, b=32)
        c = coefficients.exact(objective, coefficients.uniform(6), step)
        assert gap(objective, c).max() <= 1e-9

    @pytest.mark.parametrize("start", ["uniform", "elsewhere"])
    def test_agrees_with_many_small_eg_steps(self, start: str) -> None:
        objective = divergence(6, b=32, rho=0.7)
        begin = coefficients.uniform(6) if start == "uniform" else simplex_rows(6)
        c = coefficients.exact(objective, begin)
        small = coefficients.eg(objective, coefficients.uniform(6), 0.1, 3000)
        assert (c - small).abs().max() < 1e-4
        assert gap(objective, c).max() <= 1e-9

    def test_is_exact_whatever_the_number_of_steps(self) -> None:
        objective = divergence(6, b=32)
        few = UPDATES["exact"](objective, coefficients.uniform(6), 0.5, 1)
        assert gap(objective, few).max() <= 1e-9

    def test_ten_eg_steps_are_near(self) -> None:
        """Section 2.5: from 1/N at N = 20, 10 steps of 0.5 come within 1e-2 of the optimum, 300 within 1e-3."""
        objective = Divergence(predictions(20, 64, 10), torch.ones(20, dtype=torch.float64), 0.7)
        best = coefficients.exact(objective, coefficients.uniform(20))
        error = [(coefficients.eg(objective, coefficients.uniform(20), 0.5, n) - best).abs().max() for n in (10, 300)]
        assert error[0] < 1e-2
        assert error[1] < 1e-3


def rises(objective: Objective, step: float, steps: int = 60) -> float:
    """The most by which one of so many EG steps from equal weights raises any row's objective."""
    c, values = coefficients.uniform(len(objective.weights)), []
    for _ in range(steps):
        values.append(objective.value(c))
        c = coefficients.eg(objective, c, step, 1)
    return torch.stack(values).diff(dim=0).max().item()


class TestStep:
    """A step of 2 / (2 + rho) does not oscillate, whatever rho is."""

    RHOS = (0.1, 0.7, 2.0, 10.0, 100.0)

    @pytest.mark.parametrize("rho", RHOS)
    @pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
    def test_the_divergence_never_rises(self, rho: float, spread: float) -> None:
        for n in (2, 6, 20):
            objective = Divergence(predictions(n, 24, 6, 1, spread), n * data_weights(n), rho)
            assert rises(objective, 2 / (2 + rho)) < 1e-12

    @pytest.mark.parametrize("rho", RHOS)
    @pytest.mark.parametrize("spread", [0.3, 3.0])
    def test_nor_does_the_likelihood(self, rho: float, spread: float) -> None:
        for n in (2, 6, 20):
            assert rises(likelihood(n, rho=rho, spread=spread), 2 / (2 + rho)) < 1e-12

    @pytest.mark.parametrize("rho", RHOS)
    def test_it_gets_there(self, rho: float) -> None:
        objective = divergence(6, b=24, rho=rho)
        c = coefficients.eg(objective, coefficients.uniform(6), 2 / (2 + rho), 1000)
        assert (c - coefficients.exact(objective, coefficients.uniform(6))).abs().max() < 1e-3

    def test_a_fixed_step_would_oscillate(self) -> None:
        assert rises(divergence(2, b=24, rho=100.0), 0.5) > 1.0


class TestScale:
    """Section 2.3, fact 5: 20 clients in ten pairs of twins; what lambda and the temperature decide."""

    @staticmethod
    def solve(temperature: float, lam: float) -> tuple[float, float, Tensor]:
        base = 3.0 * torch.randn(10, 1, 60, 10, generator=stream(0), dtype=torch.float64)
        noise = torch.randn(10, 2, 60, 10, generator=stream(1), dtype=torch.float64)
        soft = coefficients.soft_predictions((base + noise).flatten(0, 1), temperature)
        objective = Divergence(soft, torch.full((20,), lam / 20, dtype=torch.float64), 0.7)
        c = coefficients.exact(objective, coefficients.uniform(20))
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
    """#4."""

    @pytest.mark.parametrize("m", [1, 2, 5, 50])
    @pytest.mark.parametrize("spread", [0.01, 1.0, 1000.0])
    def test_feasible_idempotent_and_nearest(self, m: int, spread: float) -> None:
        v = spread * torch.randn(200, m, generator=stream(m), dtype=torch.float64)
        x = coefficients.project(v)
        assert (x.sum(dim=1) - 1).abs().max() < 1e-12
        assert x.min() >= 0
        assert torch.allclose(coefficients.project(x), x, rtol=0, atol=1e-12)
        # (v - x).(e_j - x) <= 0 for every vertex e_j: no point of the simplex is nearer.
        inner = (v - x) - ((v - x) * x).sum(dim=1, keepdim=True)
        assert inner.max() < 1e-12 * max(1.0, spread)

    def test_by_hand(self) -> None:
        rows = [[0.5, 0.5, 0.5], [2.0, 0.0, 0.0], [0.8, 0.6, -3.0], [0.2, 0.3, 0.5], [-1.0, -1.0, -4.0]]
        expected = [[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0]]
        found = coefficients.project(torch.tensor(rows, dtype=torch.float64))
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)

    def test_a_shift_of_a_row_does_not_matter(self) -> None:
        v = torch.randn(20, 6, generator=stream(0), dtype=torch.float64)
        assert torch.allclose(coefficients.project(v + 3.0), coefficients.project(v), rtol=0, atol=1e-14)

    @pytest.mark.parametrize("size", [1e12, 1e100, 1e300])
    def test_huge_entries_still_give_a_distribution(self, size: float) -> None:
        v = size * torch.randn(20, 6, generator=stream(0), dtype=torch.float64)
        x = coefficients.project(v)
        assert torch.equal(x.argmax(dim=1), v.argmax(dim=1))
        assert (x.sum(dim=1) - 1).abs().max() < 1e-12


class TestTeachers:
    def test_equal_weights_give_the_average(self) -> None:
        """#8."""
        soft = predictions(7, 30, 5)
        teachers = coefficients.teachers(coefficients.uniform(7), soft)
        assert torch.allclose(teachers, soft.mean(dim=0).expand_as(soft), rtol=0, atol=1e-15)

    def test_row_is_the_student(self) -> None:
        soft = predictions(3, 4, 2)
        c = torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75], [0.0, 0.0, 1.0]], dtype=torch.float64)
        teachers = coefficients.teachers(c, soft)
        assert torch.equal(teachers[0], soft[1])
        assert torch.allclose(teachers[1], 0.25 * soft[0] + 0.75 * soft[2], rtol=0, atol=1e-15)
        assert torch.equal(teachers[2], soft[2])

    def test_are_distributions(self) -> None:
        teachers = coefficients.teachers(simplex_rows(6), predictions(6, 30, 5))
        assert torch.allclose(teachers.sum(dim=2), torch.ones(6, 30, dtype=torch.float64), rtol=0, atol=1e-14)

    def test_temperature_divides_the_logits(self) -> None:
        logits = torch.tensor([[[math.log(9.0), 0.0]]], dtype=torch.float32)
        assert coefficients.soft_predictions(logits).tolist()[0][0] == pytest.approx([0.9, 0.1], abs=1e-7)
        assert coefficients.soft_predictions(logits, 2.0).tolist()[0][0] == pytest.approx([0.75, 0.25], abs=1e-7)
        assert coefficients.soft_predictions(logits).dtype == torch.float64


class TestPartialParticipation:
    """#17."""

    @pytest.mark.parametrize("cohort", [[2], [0, 3], [1, 4, 6], [0, 1, 2, 3, 4, 5]])
    def test_only_the_block_changes_and_row_sums_stay(self, cohort: list[int]) -> None:
        c, rows = simplex_rows(7), torch.tensor(cohort)
        part, mass = coefficients.block(c, rows)
        assert torch.allclose(part.sum(dim=1), torch.ones(len(cohort), dtype=torch.float64), rtol=0, atol=1e-15)
        assert torch.allclose(part * mass, c[rows][:, rows], rtol=0, atol=1e-16)
        changed = coefficients.eg(divergence(len(cohort)), part, 0.5, 10)
        result = coefficients.write_block(c, rows, changed, mass)
        inside = torch.zeros(7, 7, dtype=torch.bool)
        inside[rows[:, None], rows] = True
        assert torch.equal(result[~inside], c[~inside])
        assert len(cohort) == 1 or not torch.equal(result[inside], c[inside])
        assert (result.sum(dim=1) - c.sum(dim=1)).abs().max() < 1e-15
        assert torch.allclose(coefficients.block(result, rows)[0], changed, rtol=0, atol=1e-15)

    def test_everyone_is_the_full_update(self) -> None:
        c, everyone = simplex_rows(5), torch.arange(5)
        part, mass = coefficients.block(c, everyone)
        assert torch.equal(part, c)
        updated = coefficients.eg(divergence(5), part, 0.5, 10)
        assert torch.equal(coefficients.write_block(c, everyone, updated, mass), updated)

    @pytest.mark.parametrize("n", range(2, 25))
    def test_an_unchanged_block_keeps_its_bits(self, n: int) -> None:
        """Else `frozen` KT-pFL would drift from FedMD: at N = 17, |S| = 11, (1/N / mass) mass is not 1/N."""
        for size in range(1, n):
            for c in (coefficients.uniform(n), simplex_rows(n)):
                part, mass = coefficients.block(c, torch.arange(size))
                assert torch.equal(coefficients.write_block(c, torch.arange(size), part, mass), c)

    def test_the_matrix_given_is_left_as_it_was(self) -> None:
        c = simplex_rows(4)
        before = c.clone()
        part, mass = coefficients.block(c, torch.tensor([0, 2]))
        coefficients.write_block(c, torch.tensor([0, 2]), part.flip(1), mass)
        assert torch.equal(c, before)


class TestAmong:
    def test_by_hand(self) -> None:
        part = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
        shown = coefficients.among(part, torch.tensor([3, 1]), 4)
        assert shown.tolist() == [[1, 0, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0], [0, 0.75, 0, 0.25]]
        assert shown.dtype == torch.float64

    def test_everyone_is_the_matrix_itself(self) -> None:
        c = simplex_rows(5)
        assert torch.equal(coefficients.among(c, torch.arange(5), 5), c)

    @pytest.mark.parametrize("cohort", [[2], [0, 3], [6, 1, 4]])
    def test_the_block_of_the_cohort_is_what_it_was(self, cohort: list[int]) -> None:
        part, rows = simplex_rows(len(cohort)), torch.tensor(cohort)
        shown = coefficients.among(part, rows, 7)
        assert torch.allclose(coefficients.block(shown, rows)[0], part, rtol=0, atol=1e-15)
        assert torch.allclose(shown.sum(dim=1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-15)


def released_update(raw: list[Tensor], weight: Tensor, penalty: float) -> Tensor:
    """The released update as section 2.10 of the reference tells it: row by row, number by number, with autograd."""
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
    """#18."""

    @pytest.mark.parametrize(
        ("n", "penalty", "temperature"), [(2, 0.7, 1.0), (5, 0.7, 10.0), (8, 3.0, 1.0), (4, 0.0, 30.0)]
    )
    def test_matches_a_transcription_over_rounds(self, n: int, penalty: float, temperature: float) -> None:
        expected = found = coefficients.uniform(n)
        for t in range(3):
            logits = 3 * torch.randn(n, 6, 4, generator=stream(10 + t), dtype=torch.float64)
            soft = coefficients.soft_predictions(logits, temperature)
            expected = released_update(list(soft), expected, penalty)
            found = coefficients.authors(SquaredError(soft, penalty), found, 1.0, 1)
            assert (found - expected).abs().max() < 1e-12

    @pytest.mark.parametrize("temperature", [1.0, 10.0])
    def test_the_step_is_forced_into_its_band(self, temperature: float) -> None:
        """Before the softmax every row moves by 0.01 to 0.05 per entry, whatever its gradient."""
        soft = coefficients.soft_predictions(
            3 * torch.randn(6, 30, 4, generator=stream(0), dtype=torch.float64), temperature
        )
        c = simplex_rows(6)
        moved = coefficients.authors(SquaredError(soft, 0.7), c, 1.0, 1).log() / 5  # the step, up to a constant a row
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
        c = coefficients.authors(SquaredError(soft, 0.0), 1 / 20 + deviation, 1.0, 1)
        assert (c - 1 / 20 - deviation / 4).abs().max() < 1e-3 * deviation.abs().max()


def test_frozen_returns_the_very_matrix() -> None:
    c = simplex_rows(4)
    assert coefficients.frozen(divergence(4), c, 0.5, 10) is c


def test_uniform() -> None:
    assert coefficients.uniform(4).tolist() == [[0.25] * 4] * 4
    assert coefficients.uniform(3).dtype == torch.float64


class TestRefuseImproper:
    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ([0.5, 0.5, 0.5], "sums to 1.5, and its least value is 0.5"),
            ([1.5, -0.5, 0.0], "sums to 1, and its least value is -0.5"),
            ([float("nan"), 0.5, 0.5], "sums to nan, and its least value is nan"),
            ([float("inf"), 0.0, 0.0], "sums to inf, and its least value is 0"),
            ([0.0, 0.0, 0.0], "sums to 0, and its least value is 0"),
        ],
    )
    def test_names_the_student_and_what_its_teacher_is(self, row: list[float], said: str) -> None:
        soft = torch.full((3, 4, 3), 1 / 3)
        soft[1, 2] = torch.tensor(row)
        with pytest.raises(InputError) as refusal:
            coefficients.refuse_improper(soft, [3, 7, 11])
        assert f"The teacher of 7 is no distribution on public image 2 of the batch (it {said})" in str(refusal.value)

    def test_of_all_alike(self) -> None:
        with pytest.raises(InputError, match=r"The teacher of lenet is no distribution on public image 0"):
            coefficients.refuse_improper(torch.full((4, 3), 1.0), ["lenet"])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_rounding_is_no_offence(self, dtype: torch.dtype) -> None:
        soft = coefficients.soft_predictions(torch.randn(20, 30, 62, generator=torch.Generator().manual_seed(0)) * 9)
        mixed = coefficients.teachers(torch.softmax(torch.randn(20, 20, dtype=torch.float64), dim=1), soft)
        coefficients.refuse_improper(mixed.to(dtype), range(20))

    def test_nobody_is_taught_by_one(self) -> None:
        fed = toy.federation()
        teachers = torch.full((5, 13, 3), 1 / 3)
        teachers[4] *= 2
        with pytest.raises(InputError, match=r"The teacher of 20 is no distribution"):
            fed.distill(fed.initial_models(), teachers, fed.public_batch(1), 1)
