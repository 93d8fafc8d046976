"""KT-pFL on parameters: its objective against autograd, its limits, and partial participation."""

from dataclasses import replace

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import SquaredDistance
from ktpfl_pipeline.core.matrix.updates import UPDATES
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import average, gram, wire_bytes
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.kt_pfl import KTpFLState
from ktpfl_pipeline.methods.kt_pfl_params import KTpFLParams, mean_distance
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
FROZEN = KTpFLParams(update="frozen")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(n: int, seed: int = 5) -> Tensor:
    return torch.softmax(random(n, n, seed=seed), dim=1)


def centred(w: Tensor) -> Tensor:
    return gram([{"w": row} for row in w], ["w"])


class TestObjective:
    @pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 1), (5, 40), (8, 3)])
    @pytest.mark.parametrize("rho", [0.0, 0.7])
    def test_value_and_gradient(self, n: int, d: int, rho: float) -> None:
        """Sum of lambda a_n ||v_n - w_n||^2 / q + rho ||c - 1/N||^2, its gradient but for a constant a row."""
        w, weights, q = random(n, d), random(n, seed=1).abs() + 0.1, 2.5
        c = rows(n).requires_grad_()
        objective = SquaredDistance(centred(w) / q, weights, rho)
        by_row = weights * (c @ w - w).square().sum(dim=1) / q + rho * (c - 1 / n).square().sum(dim=1)
        assert torch.allclose(objective.value(c), by_row, rtol=0, atol=1e-12)
        (slope,) = torch.autograd.grad(by_row.sum(), c)
        tangent = [matrix - matrix.mean(dim=1, keepdim=True) for matrix in (slope, objective.gradient(c.detach()))]
        assert torch.allclose(*tangent, rtol=0, atol=1e-9)
        (slope,) = torch.autograd.grad(objective.value(c).sum(), c)  # exactly, of what `value` says of any matrix
        assert torch.allclose(objective.gradient(c.detach()), slope, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax"])
    def test_where_the_models_lie_does_not_matter(self, update: str) -> None:
        """Centring changes no step; nor do products that are not centred."""
        w, weights = random(4, 6), torch.ones(4).double()
        found = [
            UPDATES[update](SquaredDistance(products, weights, 0.7), rows(4), 0.05, 5)
            for products in (centred(w), centred(w + 3.0), w @ w.T)
        ]
        assert torch.allclose(found[0], found[1], rtol=0, atol=1e-12)
        assert torch.allclose(found[0], found[2], rtol=0, atol=1e-12)
        assert not torch.allclose(found[0], rows(4), rtol=0, atol=1e-3)

    @pytest.mark.parametrize("normalize", [True, False])
    def test_nor_their_scale_in_units_of_their_distance(self, normalize: bool) -> None:
        fed = toy.alike(dtype="float64", training=LocalTraining(epochs=0))
        method, found = KTpFLParams(normalize=normalize), []
        for scale in (0.03, 0.06):
            models = {
                n: {name: scale * random(*tensor.shape, seed=n) for name, tensor in params.items()}
                for n, params in fed.initial_models().items()
            }
            state = KTpFLState(models, uniform(5))
            found.append(method.round(state, EVERYONE, 1, fed)[0].coefficients)
        assert torch.allclose(*found, rtol=0, atol=1e-9) == normalize

    def test_mean_distance_by_hand(self) -> None:
        """Points 0, 1 and 3: (1 + 9 + 4) / 3."""
        assert mean_distance(centred(torch.tensor([[0.0], [1.0], [3.0]]))) == pytest.approx(14 / 3, abs=1e-14)
        assert mean_distance(centred(torch.ones(3, 2))) == 1.0
        assert mean_distance(centred(torch.ones(1, 2))) == 1.0

    @pytest.mark.parametrize("update", ["eg", "pgd"])
    def test_the_default_step_does_not_overshoot(self, update: str) -> None:
        products = centred(random(5, 30))
        for rho in (0.0, 0.7, 2.0, 20.0, 200.0):
            objective = SquaredDistance(products / mean_distance(products), torch.ones(5).double(), rho)
            c, method = uniform(5), KTpFLParams(update=update, rho=rho, steps=1)
            start = objective.value(c)
            for _ in range(20):
                _, new = method.learn(c, torch.arange(5), objective)
                assert (objective.value(new) <= objective.value(c) + 1e-12).all(), rho
                c = new
            assert (objective.value(c) < start).all(), rho

    def test_it_finds_similar_clients(self) -> None:
        w = random(2, 30)
        w = torch.stack([w[0], w[1], w[0] + 0.1, 1.05 * w[1]])
        products = centred(w)
        objective = SquaredDistance(products / mean_distance(products), torch.ones(4).double(), 0.7)
        c = KTpFLParams(steps=50).learn(uniform(4), torch.arange(4), objective)[1]
        assert all(c[n, n ^ 2] > 2 * c[n, n ^ 1] for n in range(4))


class TestLimits:
    def test_equal_coefficients_give_everybody_the_mean(self) -> None:
        fed = toy.alike("both", dtype="float64")
        after, report = FROZEN.round(FROZEN.init(fed), EVERYONE, 1, fed)
        mean = average(list(report.after_local.values()), torch.full((5,), 0.2, dtype=torch.float64))
        assert toy.distance(after.models, dict.fromkeys(EVERYONE, mean)) < 1e-14

    @pytest.mark.parametrize("cohort", [EVERYONE, [3, 12, 20]], ids=["all", "three"])
    def test_coefficients_that_are_shares_of_data_give_fedavg(self, cohort: list[int]) -> None:
        """Also among those present: the rows are conditioned on them."""
        fed = toy.alike("both", dtype="float64")
        state = replace(FROZEN.init(fed), coefficients=fed.data_weights(EVERYONE).expand(5, -1).clone())
        after, _ = FROZEN.round(state, cohort, 1, fed)
        fedavg, _ = FedAvg().round(FedAvg().init(fed), cohort, 1, fed)
        assert toy.distance({n: after.models[n] for n in cohort}, dict.fromkeys(cohort, fedavg.model)) < 1e-12

    def test_the_identity_is_local_training(self) -> None:
        """Bit for bit, counters of BatchNorm included."""
        fed = toy.alike("both")
        state, alone = replace(FROZEN.init(fed), coefficients=torch.eye(5).double()), Local().init(fed)
        for t, cohort in ((1, EVERYONE), (2, [7, 11, 20]), (3, [3, 7])):
            state, _ = FROZEN.round(state, cohort, t, fed)
            alone, _ = Local().round(alone, cohort, t, fed)
        assert toy.same(state.models, alone.models)

    def test_without_a_pull_the_identity_is_found(self) -> None:
        fed = toy.alike()
        method = KTpFLParams(update="exact", rho=0.0)
        after, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        assert torch.allclose(after.coefficients, torch.eye(5).double(), rtol=0, atol=1e-3)

    @pytest.mark.parametrize("update", ["eg", "pgd", "exact"])
    def test_an_endless_pull_gives_the_mean(self, update: str) -> None:
        fed, method = toy.alike("both"), KTpFLParams(update=update, rho=1e6)
        state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        assert (state.coefficients - 0.2).abs().max() < 1e-6
        after, report = method.round(state, EVERYONE, 2, fed)
        mean = average(list(report.after_local.values()), torch.full((5,), 0.2, dtype=torch.float64))
        assert toy.distance(after.models, dict.fromkeys(EVERYONE, mean)) < 1e-5

    @pytest.mark.parametrize(("rate", "steps"), [(0.05, 1), (0.1, 4), (0.5, 1)])
    def test_mu_is_the_share_of_the_way_to_the_mixture(self, rate: float, steps: int) -> None:
        """Steps of rate eta on ||w - v||^2, each w - 2 eta (w - v)."""
        fed, mu = toy.alike("both", dtype="float64"), 1 - (1 - 2 * rate) ** steps
        start = replace(FROZEN.init(fed), coefficients=rows(5))
        replaced, _ = FROZEN.round(start, EVERYONE, 1, fed)
        moved, report = replace(FROZEN, mu=mu).round(start, EVERYONE, 1, fed)
        for n in EVERYONE:
            for name, v in replaced.models[n].items():
                w = report.after_local[n][name]
                if w.is_floating_point():
                    for _ in range(steps):
                        w = w - 2 * rate * (w - v)
                    assert torch.allclose(moved.models[n][name], w, rtol=0, atol=1e-12)

    def test_mu_of_0_is_local_training(self) -> None:
        """Where all take part: who comes late begins with what the others know."""
        schedule = Schedule(rounds=3)
        run, alone = (engine.run(m, toy.alike("both"), schedule) for m in (KTpFLParams(mu=0.0), Local()))
        assert toy.same(run.state.models, alone.state.models)


class TestFirstRoundOfALateClient:
    def test_it_trains_from_the_model_that_it_was_judged_with(self) -> None:
        fed, method = toy.alike("both", dtype="float64"), KTpFLParams(mu=0.7)
        state, first = method.round(method.init(fed), [3, 7, 12], 1, fed)
        judged = method.personal(state, [11], fed)
        mean = average([state.models[n] for n in (3, 7, 12)], torch.full((3,), 1 / 3, dtype=torch.float64))
        assert toy.distance(judged, {11: mean}) < 1e-12  # its row of c is 1/N
        _, report = method.round(state, [3, 11], 2, fed)
        assert toy.same({11: report.after_local[11]}, fed.train(judged, 2))
        sizes = {n: traffic.parameters_down for n, traffic in {**first.traffic, **report.traffic}.items()}
        assert sizes == {n: wire_bytes(judged[11]) * (2 if n == 11 else 1) for n in (3, 7, 11, 12)}


class TestRound:
    def test_the_two_orders_differ_only_in_the_models(self) -> None:
        fed, orders = toy.alike(), ("paper", "coefficients_first")
        paper, first = (KTpFLParams(order=order).round(FROZEN.init(fed), EVERYONE, 1, fed)[0] for order in orders)
        assert torch.equal(paper.coefficients, first.coefficients)
        assert toy.distance(paper.models, first.models) > 1e-4

    def test_without_changed_models_nothing_is_learned(self) -> None:
        fed = toy.alike("both", training=LocalTraining(epochs=0))
        after, _ = KTpFLParams().round(FROZEN.init(fed), EVERYONE, 1, fed)
        assert torch.allclose(after.coefficients, uniform(5), rtol=0, atol=1e-15)
        assert toy.same(after.models, fed.initial_models())

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "exact"])
    def test_absent_clients_and_the_mass_of_the_present(self, update: str) -> None:
        fed, cohort, absent = toy.alike("both"), [3, 12], [1, 2, 4]
        before = replace(FROZEN.init(fed), coefficients=rows(5))
        after, report = KTpFLParams(update=update).round(before, cohort, 1, fed)
        assert torch.equal(after.coefficients[absent], before.coefficients[absent])
        assert torch.equal(after.coefficients[:, absent], before.coefficients[:, absent])
        assert set(after.models) == set(cohort)
        block = [row[[0, 3]].sum() for row in after.coefficients[[0, 3]]]
        assert torch.stack(block).tolist() == pytest.approx(
            [float(row[[0, 3]].sum()) for row in before.coefficients[[0, 3]]], abs=1e-15
        )
        assert not torch.equal(after.coefficients, before.coefficients)
        assert torch.equal(report.coefficients, after.coefficients)

    def test_a_row_counts_the_samples_of_its_client(self) -> None:
        """Little data, little divergence, a stronger pull toward 1/N."""
        fed = toy.alike(dtype="float64")
        by_data, equal = (
            KTpFLParams(row_weight=of).round(FROZEN.init(fed), EVERYONE, 1, fed)[0].coefficients.diagonal()
            for of in ("data", "uniform")
        )
        assert by_data[2] > equal[2]  # 20 images
        assert by_data[3] < equal[3]  # 9
