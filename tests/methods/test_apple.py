"""APPLE: its two gradients against autograd, the prior, and what is kept and sent."""

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import RateSchedule
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import select, vector_of
from ktpfl_pipeline.methods.apple import APPLE, Mixing
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
SHARES = torch.tensor(toy.SIZES, dtype=torch.float64) / sum(toy.SIZES)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestStep:
    def test_both_gradients_are_autograds(self) -> None:
        """Of f(sum_j p_j w_j) + pull / 2 ||p - p_0||^2, with respect to p and to the own core; it has moved already."""
        cores, p, prior, own = random(4, 6, seed=0), random(4, seed=1), random(4, seed=2), torch.eye(4).double()[2]
        core = random(6, seed=3)

        def f(w: Tensor) -> Tensor:
            return (w.sin() * w.roll(1).exp()).sum()

        def gradient(weights: Tensor, batch: Tensor, *, probe: bool = False) -> Tensor:
            leaf = weights.clone().requires_grad_()
            return torch.autograd.grad(f(leaf), leaf)[0]

        after, moved, *rest = Mixing(2.0, 3.0, 0.7).step(
            (core, p, prior, own, cores), gradient, [torch.tensor([0])], 0.1
        )
        core_leaf, p_leaf = core.clone().requires_grad_(), p.clone().requires_grad_()
        everyone = torch.stack([core_leaf if j == 2 else cores[j] for j in range(4)])
        (f(p_leaf @ everyone) + 0.35 * (p_leaf - prior).square().sum()).backward()
        assert torch.allclose(after, core - 0.2 * core_leaf.grad, rtol=0, atol=1e-12)
        assert torch.allclose(moved, p - 0.3 * p_leaf.grad, rtol=0, atol=1e-12)
        assert toy.same(rest, [prior, own, cores])


def test_the_speed_of_cores_does_not_depend_on_the_number_of_clients() -> None:
    """One full-batch step from p_0 moves a core by N η₁ p_nn g, and not by η₁ p_nn g: for equal clients η₁ g."""
    for clients in (2, 5):
        fed = toy.alike(
            clients=clients, dtype="float64", training=LocalTraining(epochs=1, batch_size=100, learning_rate=0.1)
        )
        after, _ = APPLE().round(APPLE().init(fed), EVERYONE[:clients], 1, fed)
        alone, start = fed.train(fed.common_models(), 1), vector_of(fed.initial_model("linear"), fed.trained_names)
        for n, share in zip(alone, fed.data_weights(list(alone)).tolist(), strict=True):
            moved, expected = (vector_of(m[n], fed.trained_names) - start for m in (after.cores, alone))
            assert torch.allclose(moved, clients * share * expected, rtol=0, atol=1e-13)


def test_both_rates_follow_the_schedule_and_relations_slow_down_with_more_clients() -> None:
    """By default, and where rates are given: a round at half of η₁ is one with half of both rates."""
    schedule = RateSchedule("step", every=1, factor=0.5)
    for method, half in ((APPLE(), None), (APPLE(0.4, 0.02), APPLE(0.2, 0.01))):
        fed = toy.alike(dtype="float64", training=LocalTraining(2, 8, 0.1, schedule=schedule))
        slow = toy.again(fed, training=LocalTraining(2, 8, 0.05 if half is None else 0.1))
        found, _ = method.round(method.init(fed), EVERYONE, 2, fed)
        expected, _ = (half or method).round(method.init(fed), EVERYONE, 2, slow)
        assert toy.distance(found.cores, expected.cores) < 1e-13
        assert torch.allclose(found.relations, expected.relations, rtol=0, atol=1e-13)
    assert APPLE().rule(toy.alike(clients=2)).relation > APPLE().rule(toy.alike(clients=5)).relation


def test_a_given_rate_needs_a_learning_rate_whose_schedule_it_follows() -> None:
    fed = toy.alike(training=LocalTraining(2, 8, 0.0))
    for method in (APPLE(core_rate=0.4), APPLE(relation_rate=0.02), APPLE(0.0, 0.0)):
        with pytest.raises(InputError, match=r"^training\.learning_rate is 0, but APPLE's core_rate and relation"):
            method.round(method.init(fed), EVERYONE, 1, fed)
    after, _ = APPLE().round(APPLE().init(fed), EVERYONE, 1, fed)
    assert toy.same(after.cores, fed.initial_models())


class TestRound:
    def test_starts_from_the_shares_of_data(self) -> None:
        fed = toy.alike()
        state = APPLE().init(fed)
        assert torch.allclose(state.relations, SHARES.expand(5, 5), rtol=0, atol=1e-15)
        assert toy.same(state.cores, fed.initial_models())

    def test_without_a_rate_relations_stay(self) -> None:
        fed = toy.alike()
        state = APPLE().init(fed)
        after, _ = APPLE(relation_rate=0.0).round(state, EVERYONE, 1, fed)
        assert torch.allclose(after.relations, state.relations, rtol=0, atol=1e-7)  # through float32 and back
        assert not toy.same(after.cores, state.cores)

    def test_of_one_client_without_a_rate_it_is_local_training(self) -> None:
        fed = toy.alike("conv", 1, dtype="float64")
        run, alone = (engine.run(m, fed, Schedule(rounds=2)) for m in (APPLE(relation_rate=0.0), Local()))
        assert toy.distance(run.state.cores, alone.state.models) < 1e-13
        assert toy.distance(run.state.models, alone.state.models) < 1e-13

    def test_a_pull_holds_relations_at_the_shares(self) -> None:
        fed = toy.alike()
        away = []
        for pull in (0.0, 1.0, 10.0):
            after, _ = APPLE(0.1, 0.05, pull).round(APPLE().init(fed), EVERYONE, 1, fed)
            away.append(float((after.relations - SHARES).norm()))
        assert away == sorted(away, reverse=True)
        assert away[0] > 2 * away[-1] > 0

    def test_the_pull_is_toward_the_shares_and_not_the_last_relations(self) -> None:
        fed = toy.alike(dtype="float64")
        state, _ = APPLE(0.1, 0.1, pull=0.0).round(APPLE().init(fed), EVERYONE, 1, fed)
        strong, _ = APPLE(0.1, 1e-3, pull=900.0).round(state, EVERYONE, 2, fed)
        assert (strong.relations - SHARES).abs().max() < 0.01
        assert (state.relations - SHARES).abs().max() > 0.1

    def test_the_personal_model_mixes_the_downloaded_cores_and_the_own_new_one(self) -> None:
        """By relations that were learned; both are written back, and the core is what others get."""
        fed, method = toy.alike("conv", dtype="float64"), APPLE(relation_rate=0.1)
        names = fed.trained_names
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, [7, 20], 2, fed)
        for n in (7, 20):
            p = after.relations[EVERYONE.index(n)]
            expected = sum(
                float(p[j]) * vector_of((after if m == n else before).cores[m], names) for j, m in enumerate(EVERYONE)
            )
            assert torch.allclose(vector_of(after.models[n], names), expected, rtol=0, atol=1e-13)
            assert torch.equal(after.models[n]["1.running_mean"], after.cores[n]["1.running_mean"])
            assert not torch.equal(p, before.relations[EVERYONE.index(n)])
            assert not toy.same(after.cores[n], before.cores[n])
        assert toy.same(report.after_local, {n: after.models[n] for n in (7, 20)})
        assert torch.equal(report.coefficients, after.relations)
        assert toy.same(method.personal(after, EVERYONE, fed), after.models)

    @pytest.mark.parametrize("clients", [1, 2, 5])
    def test_all_other_cores_come_down_and_the_own_goes_up(self, clients: int) -> None:
        fed = toy.alike("conv", clients)
        size = 4 * (40 + 16 + 111)
        _, report = APPLE().round(APPLE().init(fed), [3], 1, fed)
        assert report.traffic == {3: Traffic(parameters_up=size, parameters_down=(clients - 1) * size)}


def test_newcomers_start_with_the_average_of_the_uploaded_cores() -> None:
    fed, method = toy.alike("conv", dtype="float64"), APPLE(relation_rate=0.1)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    joined = method.join(state, select(state.models, EVERYONE[:4]), EVERYONE[4:], fed)
    sizes = [len(fed.by_id[n].train) for n in EVERYONE[:4]]
    for name in fed.trained_names:
        total = sum(size * state.cores[n][name] for n, size in zip(EVERYONE[:4], sizes, strict=True))
        assert torch.allclose(joined.models[EVERYONE[4]][name], total / sum(sizes), rtol=0, atol=1e-14)
    assert joined.traffic == {EVERYONE[4]: Traffic(parameters_down=4 * (40 + 16 + 111))}
