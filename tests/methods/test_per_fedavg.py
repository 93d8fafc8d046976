"""Per-FedAvg: the meta-step against autograd, the Hessian's product, and what a client adapts on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
import toy
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.client.sgd import batches
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.recipe import RateSchedule
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import vector_of, with_vector
from ktpfl_pipeline.methods.per_fedavg import PerFedAvg, hessian_product

EVERYONE = list(toy.IDS)
NONE = torch.tensor([0])
Function = Callable[[Tensor], Tensor]


def slope_of(function: Function) -> Gradient:
    def gradient(weights: Tensor, batch: Tensor, *, probe: bool = False) -> Tensor:
        w = weights.clone().requires_grad_()
        return torch.autograd.grad(function(w), w)[0]

    return gradient


def wavy(w: Tensor) -> Tensor:
    return (w.sin() * w.roll(1).exp()).sum()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class EverySecondBatch:
    """Plain SGD that leaves out the batches on which Per-FedAvg adapts, and those of the Hessian."""

    rate: float
    batches: int

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        return (sgd(vectors[0], gradient(vectors[0], group[1]), self.rate),)


class TestStep:
    @pytest.mark.parametrize("hessian", [False, True], ids=["FO", "HF"])
    def test_alpha_of_0_is_fedavg_on_the_second_batches(self, hessian: bool) -> None:
        """Bit for bit."""
        fed = toy.alike()
        method = PerFedAvg(alpha=0.0, beta=0.05, hessian=hessian)
        _, report = method.round(method.init(fed), EVERYONE, 1, fed)
        start = dict.fromkeys(EVERYONE, fed.initial_model("linear"))
        expected, _ = fed.train_by(EverySecondBatch(0.05, 3 if hessian else 2), start, 1)
        assert toy.same(report.after_local, expected)

    def test_hessian_products_error_shrinks_with_the_square_of_the_step(self) -> None:
        """A vector of norm 1 or less is the step in units of δ, and the product is linear in it."""
        w, v = random(6), random(6, seed=1)
        v = v / v.norm()
        _, exact = torch.autograd.functional.hvp(wavy, w, v)
        errors = [
            float((hessian_product(w, part * v, slope_of(wavy), NONE) / part - exact).norm())
            for part in (1.0, 0.5, 0.25)
        ]
        assert 0 < errors[0] < 1e-4
        assert errors[1] / errors[0] == pytest.approx(0.25, rel=0.01)
        assert errors[2] / errors[1] == pytest.approx(0.25, rel=0.01)

    def test_a_long_vector_takes_no_longer_step(self) -> None:
        """v of norm 1000: with a step of delta v the points would lie 1 away."""
        w, v = random(6), random(6, seed=1)
        v = 1000.0 * v / v.norm()
        _, exact = torch.autograd.functional.hvp(wavy, w, v)
        assert float((hessian_product(w, v, slope_of(wavy), NONE) - exact).norm()) < 1e-5 * float(exact.norm())

    def test_with_one_batch_it_is_the_gradient_after_adapting(self) -> None:
        """Of f(w - alpha f'(w)), by autograd through the inner step; f is quadratic, so the difference is exact."""
        a = random(5, 5)
        a, b, w, alpha = a @ a.T, random(5, seed=1), random(5, seed=2), 0.03

        def f(w: Tensor) -> Tensor:
            return 0.5 * w @ a @ w - b @ w

        leaf = w.clone().requires_grad_()
        (inner,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
        (exact,) = torch.autograd.grad(f(leaf - alpha * inner), leaf)
        (after,) = PerFedAvg(alpha, 0.5, hessian=True).step((w,), slope_of(f), [NONE] * 3, 9.0)
        assert torch.allclose(w - after, 0.5 * exact, rtol=0, atol=1e-10)
        (first_order,) = PerFedAvg(alpha, 0.5, hessian=False).step((w,), slope_of(f), [NONE] * 2, 9.0)
        assert torch.allclose(w - first_order, 0.5 * (a @ (w - alpha * inner.detach()) - b), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("hessian", [False, True], ids=["FO", "HF"])
    def test_each_gradient_on_clients_has_a_separate_batch(self, hessian: bool) -> None:
        training = LocalTraining(epochs=1, batch_size=7, learning_rate=0.1)
        fed = toy.alike(dtype="float64", training=training)
        method = PerFedAvg(alpha=0.2, beta=0.3, hessian=hessian)
        _, report = method.round(method.init(fed), [11], 1, fed)  # 20 images: 7, 7, 6
        order = batches(20, 7, fed.stream("private shuffle", 1, 11))
        w = vector_of(fed.initial_model("linear"), fed.trained_names)
        for group in [order] if hessian else [order[:2], [order[2], order[2]]]:
            b1, b2, b3 = (*group, group[0])[:3]
            v = gradient(fed, 11, w - 0.2 * gradient(fed, 11, w, b1), b2)
            if hessian:
                v = v - 0.2 * torch.autograd.functional.hvp(lambda w, b=b3: loss(fed, 11, w, b), w, v)[1]
            w = w - 0.3 * v
        found = vector_of(report.after_local[11], fed.trained_names)
        assert torch.allclose(found, w, rtol=0, atol=1e-7 if hessian else 1e-14)

    @pytest.mark.parametrize(("hessian", "expected"), [(False, 4), (True, 2)])
    def test_only_two_gradients_of_a_step_move_batchnorms_statistics(self, hessian: bool, expected: int) -> None:
        """Of 20 images in batches of 8, 8, 4: two steps (FO) or one (HF)."""
        training = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)
        fed = toy.alike("both", training=training)
        method = PerFedAvg(hessian=hessian)
        _, report = method.round(method.init(fed), [11], 1, fed)
        assert report.after_local[11]["1.num_batches_tracked"].item() == expected


def loss(fed: Federation, n: int, w: Tensor, batch: Tensor) -> Tensor:
    samples, params = fed.by_id[n].train, with_vector(fed.initial_model("linear"), fed.trained_names, w)
    pixels = samples.inputs[batch].double() / 127.5 - 1.0
    return cross_entropy(functional_call(toy.build("linear").double(), params, (pixels,)), samples.labels[batch])


def gradient(fed: Federation, n: int, w: Tensor, batch: Tensor) -> Tensor:
    return slope_of(lambda w: loss(fed, n, w, batch))(w, batch)


class TestServer:
    def test_clients_count_alike(self) -> None:
        fed = toy.alike(dtype="float64")
        after, report = PerFedAvg().round(PerFedAvg().init(fed), EVERYONE, 1, fed)
        for name, value in after.model.items():
            expected = sum(report.after_local[n][name] for n in EVERYONE) / 5
            assert torch.allclose(value, expected, rtol=0, atol=1e-15)

    @pytest.mark.parametrize("hyperparameter", ["alpha", "beta"])
    def test_the_default_rates_are_the_learning_rate(self, hyperparameter: str) -> None:
        fed = toy.alike()
        default, given, other = (
            PerFedAvg(**{hyperparameter: rate}).round(PerFedAvg().init(fed), [3], 1, fed)[0]
            for rate in (None, 0.1, 0.2)
        )
        assert toy.same(default, given)
        assert not toy.same(default, other)

    def test_the_default_alpha_does_not_follow_the_schedule(self) -> None:
        """The objective has one α; β follows the schedule, which halves η₁ = 0.1 before round 2."""
        slower = RateSchedule(kind="step", every=1, factor=0.5)
        fed = toy.alike(training=LocalTraining(epochs=1, batch_size=8, learning_rate=0.1, schedule=slower))
        default, given, other = (
            PerFedAvg(alpha, beta).round(PerFedAvg().init(fed), [3], 2, fed)[0]
            for alpha, beta in ((None, None), (0.1, 0.05), (0.05, 0.05))
        )
        assert toy.same(default, given)
        assert not toy.same(default, other)


class TestAdaptation:
    def test_is_a_step_on_a_batch_of_the_clients_own(self) -> None:
        fed, method = toy.alike(dtype="float64"), PerFedAvg(alpha=0.2)
        state = method.init(fed)
        for n, params in method.personal(state, EVERYONE, fed).items():
            w = vector_of(state.model, fed.trained_names)
            first = batches(len(fed.by_id[n].train), 8, fed.stream("private shuffle", 0, n))[0]
            expected = w - 0.2 * gradient(fed, n, w, first)
            assert torch.allclose(vector_of(params, fed.trained_names), expected, rtol=0, atol=1e-14)

    def test_without_steps_it_is_the_common_model(self) -> None:
        fed, method = toy.alike("both"), PerFedAvg(adapt_steps=0)
        assert toy.same(method.personal(method.init(fed), EVERYONE, fed), fed.initial_models())

    def test_more_steps_go_on_from_there(self) -> None:
        fed = toy.alike()
        losses = []
        for steps in (0, 1, 2):
            adapted = PerFedAvg(adapt_steps=steps).personal(PerFedAvg().init(fed), EVERYONE, fed)
            losses.append(sum(evaluation.loss for evaluation in fed.evaluate(adapted, "train").values()))
        assert losses == sorted(losses, reverse=True)

    def test_as_many_as_are_asked_for_also_beyond_one_pass(self) -> None:
        """Of 9 to 20 images in batches of 8 a pass has one to three."""
        fed = toy.alike()
        with_six, with_seven = (PerFedAvg(adapt_steps=k).personal(PerFedAvg().init(fed), [12], fed) for k in (6, 7))
        assert not toy.same(with_six, with_seven)

    def test_never_enters_the_rounds(self) -> None:
        fed, state = toy.alike("both"), PerFedAvg().init(toy.alike("both"))
        before = PerFedAvg().round(state, EVERYONE, 1, fed)[0]
        PerFedAvg(adapt_steps=2).personal(state, EVERYONE, fed)
        assert toy.same(PerFedAvg(adapt_steps=2).round(state, EVERYONE, 1, fed)[0], before)
