"""pFedMe: the inner problem and the Moreau gradient in closed form, and what travels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import vector_of
from ktpfl_pipeline.methods.pfedme import PFedMe

EVERYONE = list(toy.IDS)
NONE = [torch.tensor([0])]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


A = random(5, 5, seed=0) @ random(5, 5, seed=0).T
B, W = random(5, seed=1), random(5, seed=2)
LARGEST = float(torch.linalg.eigvalsh(A)[-1])


def quadratic(w: Tensor, batch: Tensor, *, probe: bool = False) -> Tensor:
    return A @ w - B


def closest(w: Tensor, coupling: float) -> Tensor:
    """Return the minimizer of theta A theta / 2 - B theta + (coupling / 2) ||theta - w||^2."""
    return torch.linalg.solve(A + coupling * torch.eye(5, dtype=torch.float64), B + coupling * w)


def solved(coupling: float, rate: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return theta and w after one mini-batch with so many inner steps that theta has arrived."""
    rule = PFedMe(coupling, inner_steps=20_000, inner_rate=1.0 / (LARGEST + coupling))
    theta, w = rule.step((W, W), quadratic, NONE, rate)
    return theta, w


class TestStep:
    @pytest.mark.parametrize("coupling", [0.5, 15.0])
    def test_many_inner_steps_solve_the_inner_problem(self, coupling: float) -> None:
        theta, _ = solved(coupling)
        assert torch.allclose(theta, closest(W, coupling), rtol=0, atol=1e-10)
        assert torch.allclose(coupling * (W - theta), quadratic(theta, NONE[0]), rtol=0, atol=1e-10)

    @pytest.mark.parametrize("coupling", [0.5, 15.0])
    def test_w_then_steps_down_the_moreau_envelope(self, coupling: float) -> None:
        """Whose gradient autograd finds through the closed form of the inner minimum."""
        leaf = W.clone().requires_grad_()
        theta = closest(leaf, coupling)
        envelope = 0.5 * theta @ A @ theta - B @ theta + 0.5 * coupling * (theta - leaf).square().sum()
        envelope.backward()
        _, w = solved(coupling, rate=0.01)
        assert torch.allclose(W - w, 0.01 * leaf.grad, rtol=0, atol=1e-10)

    def test_a_rate_of_one_over_the_coupling_goes_all_the_way(self) -> None:
        theta, w = PFedMe(4.0, 5, 0.01).step((W, W), quadratic, NONE, 0.25)
        assert torch.allclose(w, theta, rtol=0, atol=1e-15)
        assert not torch.allclose(theta, W, rtol=0, atol=1e-3)

    def test_a_strong_coupling_makes_it_gradient_descent(self) -> None:
        theta, w = solved(1e5, rate=0.01)
        assert torch.allclose(theta, W, rtol=0, atol=1e-3)
        assert torch.allclose(W - w, 0.01 * quadratic(W, NONE[0]), rtol=0, atol=1e-5)

    def test_a_step_by_hand(self) -> None:
        """f' = 2 theta, theta = w = 1, coupling 1, two inner steps of 1/4, rate 1/2.

        theta: 1 - (2 + 0) / 4 = 1/2, then 1/2 - (1 - 1/2) / 4 = 3/8; w: 1 - (1 - 3/8) / 2 = 11/16.
        """
        one = torch.ones(1)
        theta, w = PFedMe(1.0, 2, 0.25).step((one, one), lambda w, batch, probe=False: 2 * w, NONE, 0.5)
        assert (theta.item(), w.item()) == (0.375, 0.6875)

    def test_the_default_inner_rate_is_the_learning_rate(self) -> None:
        default, given = (PFedMe(2.0, 3, rate).step((W, W), quadratic, NONE, 0.02) for rate in (None, 0.02))
        assert toy.same(default, given)


@dataclass(frozen=True)
class Repeated:
    """So many steps of plain SGD on each mini-batch."""

    times: int
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        (w,) = vectors
        for _ in range(self.times):
            w = sgd(w, gradient(w, group[0]), rate)
        return (w,)


class TestRound:
    @pytest.mark.parametrize("architecture", ["linear", "both"])
    def test_without_coupling_the_common_model_stays_and_theta_is_local_training(self, architecture: str) -> None:
        """Bit for bit, for K = 1 and more."""
        fed = toy.alike(architecture)
        for inner_steps in (1, 3):
            method = PFedMe(coupling=0.0, inner_steps=inner_steps)
            after, _ = method.round(method.init(fed), EVERYONE, 1, fed)
            start = fed.initial_model(architecture)
            assert all(torch.equal(after.common[name], start[name]) for name in fed.trained_names)
            expected, _ = fed.train_by(Repeated(inner_steps), dict.fromkeys(EVERYONE, start), 1)
            assert toy.same(after.models, expected)
            if inner_steps == 1:
                assert toy.same(after.models, fed.train(fed.initial_models(), 1))

    @pytest.mark.parametrize("server_rate", [1.0, 0.25, 2.0])
    def test_w_is_averaged_by_samples(self, server_rate: float) -> None:
        fed, cohort = toy.alike(dtype="float64"), [3, 12]
        method = PFedMe(coupling=3.0, inner_steps=2, server_rate=server_rate)
        state = method.init(fed)
        after, report = method.round(state, cohort, 1, fed)
        w = vector_of(state.common, fed.trained_names)
        theta, ends = fed.train_by(
            PFedMe(3.0, 2, None), dict.fromkeys(cohort, state.common), 1, dict.fromkeys(cohort, (w,))
        )
        average = (16 * ends[3][0] + 9 * ends[12][0]) / 25
        expected = (1 - server_rate) * w + server_rate * average
        assert torch.allclose(vector_of(after.common, fed.trained_names), expected, rtol=0, atol=1e-14)
        thetas = (16 * vector_of(theta[3], fed.trained_names) + 9 * vector_of(theta[12], fed.trained_names)) / 25
        assert float((average - thetas).abs().max()) > 1e-3
        assert toy.same(report.after_local, theta)

    def test_statistics_of_batch_norm_are_averages_with_any_server_rate(self) -> None:
        fed = toy.alike("conv")
        methods = [PFedMe(server_rate=rate) for rate in (1.0, 2.0)]
        whole, far = (method.round(method.init(fed), EVERYONE, 1, fed)[0].common for method in methods)
        changed = {name for name in whole if not torch.equal(whole[name], far[name])}
        # BatchNorm removes the bias of the convolution before it: its gradient is rounding error and may be zero.
        assert set(fed.trained_names) - {"0.bias"} <= changed <= set(fed.trained_names)

    def test_theta_is_evaluated_before_the_aggregation(self) -> None:
        fed, method = toy.alike(), PFedMe()
        after, report = method.round(method.init(fed), [7, 11], 1, fed)
        found = method.personal(after, EVERYONE, fed)
        assert toy.same({n: found[n] for n in (7, 11)}, report.after_local)
        assert toy.same({n: found[n] for n in (3, 12, 20)}, dict.fromkeys((3, 12, 20), after.common))

    def test_theta_starts_at_the_common_model_in_every_round(self) -> None:
        fed, method = toy.alike(), PFedMe(coupling=2.0)
        state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        forgotten = replace(state, models=fed.common_models())
        assert toy.same(
            method.round(state, [3, 7], 2, fed)[1].after_local, method.round(forgotten, [3, 7], 2, fed)[1].after_local
        )

    def test_a_stronger_coupling_keeps_theta_nearer(self) -> None:
        training = LocalTraining(epochs=2, batch_size=8, learning_rate=0.02)
        fed = toy.alike(training=training)
        moved = []
        for coupling in (0.0, 1.0, 15.0):
            after, _ = PFedMe(coupling).round(PFedMe().init(fed), EVERYONE, 1, fed)
            moved.append(toy.distance(after.models, fed.initial_models()))
        assert moved == sorted(moved, reverse=True)
