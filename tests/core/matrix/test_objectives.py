"""What the coefficients minimize: values and gradients."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from matrices import data_weights, divergence, independent_loss, likelihood, predictions, simplex_rows, stream
from torch import Tensor

from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Divergence, Likelihood, SquaredError
from ktpfl_pipeline.core.matrix.teachers import log_soft_predictions, mix_teachers
from ktpfl_pipeline.core.matrix.updates import UPDATES, eg, exact, pgd, softmax

STEPS = {"eg": 0.5, "pgd": 0.05, "softmax": 0.5, "exact": 1.0, "authors": 1.0, "frozen": 0.0}
SHAPES = ((1, 2), (16, 10), (64, 62))
"""Samples and classes."""


class TestByHand:
    """N = 2 clients, B = 1 sample, K = 2 classes, s_1 = (0.8, 0.2), s_2 = (0.2, 0.8), C = 1/2 everywhere.

    The teacher is (1/2, 1/2). KL = ln(0.625)/2 + ln(2.5)/2 = 0.2231436. The gradient of client 1's row is
    H_11 = 0.8 ln 0.625 + 0.2 ln 2.5 + 1 = 0.8072552 and H_12 = 0.2 ln 0.625 + 0.8 ln 2.5 + 1 = 1.6390319.
    """

    objective = Divergence(
        torch.tensor([[[0.8, 0.2]], [[0.2, 0.8]]], dtype=torch.float64).log(), torch.ones(2, dtype=torch.float64), 0.0
    )
    half = uniform(2)

    def test_value(self) -> None:
        assert self.objective.value(self.half).tolist() == pytest.approx([0.2231435513, 0.2231435513], abs=1e-9)

    def test_gradient(self) -> None:
        found = self.objective.gradient(self.half)
        assert found[0].tolist() == pytest.approx([0.8072552, 1.6390319], abs=1e-7)
        assert found[1].tolist() == pytest.approx([1.6390319, 0.8072552], abs=1e-7)

    def test_one_eg_step(self) -> None:
        # c_11 / c_12 = exp(0.5 (1.6390319 - 0.8072552)) = exp(0.4158885), so c_11 = 0.6024990.
        c = eg(self.objective, self.half, 0.5, 1)
        assert c[0].tolist() == pytest.approx([0.6024990, 0.3975010], abs=1e-6)
        assert c[1].tolist() == pytest.approx([0.3975010, 0.6024990], abs=1e-6)

    def test_one_pgd_step(self) -> None:
        # Off the mean of the row the gradient is -+0.4158885: c_11 = 1/2 + 0.1 x 0.4158885.
        c = pgd(self.objective, self.half, 0.1, 1)
        assert c[0].tolist() == pytest.approx([0.5415888, 0.4584112], abs=1e-6)

    def test_one_softmax_step(self) -> None:
        # dL/dA_11 = c (g - <c, g>) = 1/2 (0.8072552 - 1.2231434) = -0.2079442; c_11 = sigmoid(2 x 1 x 0.2079442).
        c = softmax(self.objective, self.half, 1.0, 1)
        assert c[0, 0].item() == pytest.approx(1 / (1 + math.exp(-2 * 0.2079442)), abs=1e-6)

    def test_the_pull_toward_equal_weights(self) -> None:
        c = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)
        pulled = Divergence(self.objective.log_soft, torch.zeros(2, dtype=torch.float64), rho=0.7)
        assert pulled.value(c).tolist() == pytest.approx([0.7 * (0.16 + 0.16), 0.0])
        assert pulled.gradient(c)[0].tolist() == pytest.approx([1.4 * 0.4, -1.4 * 0.4])

    def test_squared_error(self) -> None:
        # p_1 - s_1 = (-0.3, 0.3): mean square 0.09; rho x mean((0.1)^2, (0.1)^2) at c = (0.6, 0.4) adds 0.007.
        objective = SquaredError(self.objective.soft, 0.7)
        assert objective.value(self.half).tolist() == pytest.approx([0.09, 0.09])
        c = torch.tensor([[0.6, 0.4], [0.5, 0.5]], dtype=torch.float64)
        assert objective.value(c)[0].item() == pytest.approx(0.24**2 + 0.007)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
class TestGradient:
    """The closed forms against autograd and torch's own KL."""

    @pytest.mark.parametrize(("lam", "rho"), [(1.0, 0.7), (20.0, 0.0), (0.0, 3.0)])
    def test_divergence(self, n: int, lam: float, rho: float) -> None:
        for shape, rows in zip(SHAPES, self.starts(n), strict=True):
            objective = divergence(n, *shape, lam=lam, rho=rho)
            c = rows.requires_grad_()
            loss = independent_loss(c, objective.soft, objective.weights, rho)
            (expected,) = torch.autograd.grad(loss, c)
            assert torch.allclose(objective.gradient(c.detach()), expected, rtol=0, atol=1e-10), shape
            assert objective.value(c.detach()).sum().item() == pytest.approx(loss.item(), abs=1e-12, rel=1e-13), shape

    def test_squared_error(self, n: int) -> None:
        for shape, rows in zip(SHAPES, self.starts(n), strict=True):
            soft, c = predictions(n, *shape), rows.requires_grad_()
            teachers = [sum(c[student, m] * soft[m] for m in range(n)) for student in range(n)]
            loss = sum(
                F.mse_loss(soft[m], teachers[m]) + 0.7 * F.mse_loss(c[m], torch.full_like(c[m], 1 / n))
                for m in range(n)
            )
            (expected,) = torch.autograd.grad(loss, c)
            objective = SquaredError(soft, 0.7)
            assert torch.allclose(objective.gradient(c.detach()), expected, rtol=0, atol=1e-12), shape
            assert objective.value(c.detach()).sum().item() == pytest.approx(loss.item(), abs=1e-13), shape

    def test_kl_is_torchs(self, n: int) -> None:
        for shape, c in zip(SHAPES, self.starts(n), strict=True):
            soft = predictions(n, *shape)
            value = Divergence(soft.log(), torch.ones(n, dtype=torch.float64), 0.0).value(c)
            for m, teacher in enumerate(mix_teachers(c, soft)):
                expected = F.kl_div(soft[m].log(), teacher, reduction="batchmean")
                assert value[m].item() == pytest.approx(expected.item(), abs=1e-14, rel=1e-14), shape

    @staticmethod
    def starts(n: int) -> list[Tensor]:
        """Return a matrix for each shape: rows that are distributions, in the second rows that are only positive."""
        return [simplex_rows(n), simplex_rows(n) * 2 + 0.1, simplex_rows(n)]


class TestObjective:
    @pytest.mark.parametrize("n", [2, 5])
    def test_hessian(self, n: int) -> None:
        """Each row's Hessian is lambda a_n (1/B) sum_x S diag(1/p) S^T + 2 rho I; no eigenvalue below 2 rho."""
        objective, c = divergence(n, rho=0.7), simplex_rows(n)
        soft = objective.soft
        teachers = mix_teachers(c, soft)
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

    def test_blocks_of_rows_change_nothing_but_rounding(self) -> None:
        """One row at a time, two, and all seven."""
        whole, c = divergence(7, 33, 4), simplex_rows(7)
        for memory, blocks in ((1, 7), (2 * 5 * 33 * 4 * 8, 4), (10**6, 1)):
            blocked = Divergence(whole.log_soft, whole.weights, whole.rho, memory)
            assert len(blocked._blocks) == blocks
            assert torch.allclose(blocked.value(c), whole.value(c), rtol=0, atol=1e-13), blocks
            assert torch.allclose(blocked.gradient(c), whole.gradient(c), rtol=0, atol=1e-13), blocks

    def test_all_clients_in_one_block_are_as_without_blocks_to_the_bit(self) -> None:
        """The bound of twenty clients of the paper is far below the default."""
        assert len(divergence(20, 3000, 10)._blocks) == 1

    def test_the_order_of_samples_and_classes_does_not_matter(self) -> None:
        soft, weights, c = predictions(5, 40, 7), data_weights(5), simplex_rows(5)
        samples, classes = torch.randperm(40, generator=stream(1)), torch.randperm(7, generator=stream(2))
        for make in (lambda s: Divergence(s.log(), weights, 0.7), lambda s: SquaredError(s, 0.7)):
            gradient = make(soft).gradient(c)
            assert torch.allclose(make(soft[:, samples]).gradient(c), gradient, rtol=0, atol=1e-14)
            assert torch.allclose(make(soft[:, :, classes]).gradient(c), gradient, rtol=0, atol=1e-14)

    def test_certain_predictions_stay_finite(self) -> None:
        """Also where probabilities underflow to 0."""
        logits = torch.zeros(3, 4, 5, dtype=torch.float64)
        logits[0, :, 0], logits[1, :, 1], logits[2, :, 2] = 1e4, 1e4, 1e4
        objective = Divergence(log_soft_predictions(logits), torch.ones(3, dtype=torch.float64), 0.7)
        for c in (uniform(3), torch.eye(3, dtype=torch.float64)):
            assert objective.value(c).isfinite().all()
            assert objective.gradient(c).isfinite().all()
        for update in ("eg", "pgd", "softmax", "exact"):
            c = UPDATES[update](objective, uniform(3), 0.5, 10)
            assert torch.allclose(c.sum(dim=1), torch.ones(3, dtype=torch.float64))
        assert torch.allclose(objective.value(torch.eye(3, dtype=torch.float64)), torch.tensor(0.7 * 6 / 9).double())

    def test_the_logarithm_of_a_tiny_probability_is_not_clamped(self) -> None:
        """s_1 = (1, e^-60) and s_2 = (e^-60, 1): at c = 1/2 client 1's divergence is 30 - ln 2; a clamp says 13.1."""
        logits = torch.tensor([[[60.0, 0.0]], [[0.0, 60.0]]], dtype=torch.float64)
        objective = Divergence(log_soft_predictions(logits), torch.ones(2, dtype=torch.float64), 0.0)
        assert objective.value(uniform(2)).tolist() == pytest.approx([30 - math.log(2)] * 2, abs=1e-12)
        assert objective.gradient(uniform(2))[0].tolist() == pytest.approx(
            [1 - math.log(2), 61 - math.log(2)], abs=1e-12
        )


class TestLikelihood:
    def test_by_hand(self) -> None:
        """Client 1 has two images, client 2 one, and the equal mixture gives their labels 0.5, 0.5 and 0.375.

        So NLL_1 = ln 2 and NLL_2 = -ln 0.375, halved by a weight of 1/2. The gradient of row 1 is
        -((0.8, 0.2) / 0.5 + (0.4, 0.6) / 0.5) / 2 = (-1.2, -0.8); that of row 2, half of -(0.5, 0.25) / 0.375 and of
        the -1 of the image that is not there.
        """
        probabilities = torch.tensor([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.25], [1.0, 1.0]]], dtype=torch.float64)
        images, weights = torch.tensor([[2.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
        half = uniform(2)
        objective = Likelihood(probabilities, images, weights, 0.0)
        assert objective.value(half).tolist() == pytest.approx([math.log(2.0), -0.5 * math.log(0.375)], abs=1e-15)
        expected = torch.tensor([[-1.2, -0.8], [-7 / 6, -5 / 6]], dtype=torch.float64)
        assert torch.allclose(objective.gradient(half), expected, rtol=0, atol=1e-15)
        c = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)
        pulled = Likelihood(probabilities, images, torch.zeros(2, dtype=torch.float64), 0.7)
        assert pulled.value(c).tolist() == pytest.approx([0.7 * 0.32, 0.0], abs=1e-15)
        assert pulled.gradient(c)[0].tolist() == pytest.approx([0.56, -0.56], abs=1e-15)

    @pytest.mark.parametrize(("n", "rho", "spread"), [(1, 0.7, 3.0), (2, 0.0, 0.3), (5, 0.7, 3.0), (20, 3.0, 0.3)])
    def test_against_autograd(self, n: int, rho: float, spread: float) -> None:
        """Client by client and image by image, in float64; missing images add one number to a whole row."""
        objective, c = likelihood(n, rho=rho, spread=spread), simplex_rows(n).requires_grad_()
        values, constants = [], []
        for row in range(n):
            own = int(objective.samples[row])
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
        padded = Likelihood(torch.cat([short.probabilities, ones], dim=1), short.samples, short.weights, short.rho)
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
            objective.probabilities[order][:, :, order], objective.samples[order], objective.weights[order], 0.7
        )
        one = eg(objective, simplex_rows(6), 0.5, 5)[order][:, order]
        other = eg(moved, simplex_rows(6)[order][:, order], 0.5, 5)
        assert torch.allclose(one, other, rtol=0, atol=1e-14)

    def test_the_only_model_that_knows_is_listened_to(self) -> None:
        """Model 2 is certain and right on everybody's images, the others guess."""
        probabilities = torch.full((3, 10, 3), 0.1, dtype=torch.float64)
        probabilities[:, :, 2] = 1.0
        objective = Likelihood(probabilities, torch.full((3,), 10.0).double(), torch.ones(3).double(), 0.0)
        c = exact(objective, uniform(3))
        assert c[:, 2].min() > 1 - 1e-8

    def test_where_everybody_is_wrong_it_stays_finite(self) -> None:
        objective = Likelihood(torch.zeros(3, 4, 3).double(), torch.full((3,), 4.0).double(), torch.ones(3).double(), 0)
        for update in ("eg", "pgd", "softmax", "exact"):
            c = UPDATES[update](objective, uniform(3), 0.5, 3)
            assert torch.allclose(c, uniform(3), rtol=0, atol=1e-15)
        assert objective.value(c).isfinite().all()
