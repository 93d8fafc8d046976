"""Sim-pFL and TopK-pFL: whose predictions are similar, and who teaches whom by that."""

import itertools
from dataclasses import asdict
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.settings import Distillation
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.methods.sim_pfl import SimPFL, TopKPFL, similarities

EVERYONE = list(toy.IDS)
MIXTURES = (SimPFL(), SimPFL(weights="direct"), TopKPFL(k=1), TopKPFL(k=3), TopKPFL(k=9))

# One public sample, two classes: (4/5, 1/5), (1/5, 4/5), (1/2, 1/2), whose cosines are 8/17 and twice 5/sqrt(34).
THREE = torch.tensor([[[0.8, 0.2]], [[0.2, 0.8]], [[0.5, 0.5]]], dtype=torch.float64).log()
FAR, NEAR = 8 / 17, 5 / 34**0.5


def predictions(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(n, 9, 3, generator=generator, dtype=torch.float64)


class TestSimilarities:
    def test_by_hand(self) -> None:
        expected = torch.tensor([[1, FAR, NEAR], [FAR, 1, NEAR], [NEAR, NEAR, 1]], dtype=torch.float64)
        assert torch.allclose(similarities(THREE, 1.0), expected, rtol=0, atol=1e-15)

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
    def test_are_cosines_of_all_probabilities_as_one_vector(self, temperature: float) -> None:
        z = predictions(4)
        s = torch.softmax(z / temperature, dim=2)
        found = similarities(z, temperature)
        for n, m in itertools.product(range(4), range(4)):
            cosine = (s[n] * s[m]).sum() / (s[n].square().sum().sqrt() * s[m].square().sum().sqrt())
            assert found[n, m].item() == pytest.approx(cosine.item(), abs=1e-14)
        assert found.min() > 0
        assert (found.diagonal() - 1).abs().max() < 1e-15

    def test_are_computed_in_float64(self) -> None:
        assert similarities(THREE.float(), 1.0).dtype == torch.float64


class TestSimByHand:
    def test_minmax(self) -> None:
        """Each row less its smallest, over the sum: the least similar client gets nothing."""
        total = (1 - FAR) + (NEAR - FAR)
        own, third = (1 - FAR) / total, (NEAR - FAR) / total
        expected = torch.tensor([[own, 0, third], [0, own, third], [0, 0, 1]], dtype=torch.float64)
        found = SimPFL(temperature=1.0).mixture(THREE)
        assert torch.allclose(found, expected, rtol=0, atol=1e-14)
        assert found[0, 1] == 0

    def test_direct(self) -> None:
        first, third = 1 + FAR + NEAR, 1 + 2 * NEAR
        expected = [[1 / first, FAR / first, NEAR / first], [FAR / first, 1 / first, NEAR / first]]
        expected.append([NEAR / third, NEAR / third, 1 / third])
        found = SimPFL(weights="direct", temperature=1.0).mixture(THREE)
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)

    def test_two_clients_teach_only_themselves_with_minmax(self) -> None:
        assert torch.equal(SimPFL().mixture(THREE[:2]), torch.eye(2, dtype=torch.float64))

    def test_a_high_temperature_makes_direct_weights_equal(self) -> None:
        spread = [
            float((SimPFL(weights="direct", temperature=temperature).mixture(THREE) - 1 / 3).abs().max())
            for temperature in (1.0, 10.0, 100.0)
        ]
        assert spread[0] > 20 * spread[1] > 400 * spread[2] > 0


class TestMixtures:
    @pytest.mark.parametrize("method", MIXTURES, ids=str)
    def test_rows_are_distributions(self, method: SimPFL | TopKPFL) -> None:
        for n, seed in itertools.product((1, 2, 3, 20), range(3)):
            c = method.mixture(predictions(n, seed))
            assert c.shape == (n, n)
            assert c.dtype == torch.float64
            assert c.min() >= 0
            assert (c.sum(dim=1) - 1).abs().max() < 1e-14

    @pytest.mark.parametrize("method", MIXTURES, ids=str)
    def test_a_client_is_not_its_own_second_teacher(self, method: SimPFL | TopKPFL) -> None:
        c = method.mixture(predictions(6))
        assert (c.diagonal() == c.max(dim=1).values).all()

    @pytest.mark.parametrize("method", MIXTURES, ids=str)
    def test_permuting_clients_permutes_the_weights(self, method: SimPFL | TopKPFL) -> None:
        z, order = predictions(6), [3, 0, 5, 1, 4, 2]
        c = method.mixture(z)
        assert torch.allclose(method.mixture(z[order]), c[order][:, order], rtol=0, atol=1e-14)

    @pytest.mark.parametrize("method", MIXTURES, ids=str)
    def test_the_order_of_samples_and_classes_does_not_matter(self, method: SimPFL | TopKPFL) -> None:
        z = predictions(6)
        shuffled = z[:, torch.randperm(9, generator=torch.Generator().manual_seed(1))][:, :, [2, 0, 1]]
        assert torch.allclose(method.mixture(shuffled), method.mixture(z), rtol=0, atol=1e-14)

    @pytest.mark.parametrize("weights", ["minmax", "direct"])
    def test_identical_clients_weigh_the_same(self, weights: str) -> None:
        for n in (1, 2, 50):
            c = SimPFL(weights=weights).mixture(predictions(1).expand(n, -1, -1))
            assert torch.allclose(c, torch.full_like(c, 1 / n), rtol=0, atol=1e-14)

    def test_the_predictions_given_are_left_as_they_were(self) -> None:
        for method in MIXTURES:
            z = predictions(5)
            method.mixture(z)
            assert torch.equal(z, predictions(5))


class TestTopK:
    @pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 7])
    def test_equal_weights_for_the_k_most_similar(self, k: int) -> None:
        z = predictions(6)
        c, scores = TopKPFL(k=k).mixture(z), similarities(z, 1.0)
        taken = min(k, 6)
        for n in range(6):
            support = c[n].nonzero()[:, 0].tolist()
            assert len(support) == taken
            assert n in support
            assert (c[n, support] == 1 / taken).all()
            left = [m for m in range(6) if m not in support]
            assert all(scores[n, m] > scores[n, other] for m in support for other in left)

    def test_by_hand(self) -> None:
        expected = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0, 0.5]], dtype=torch.float64)
        z = THREE + torch.tensor([0.0, 0.1]) * torch.tensor([0.0, 1.0, 0.0])[:, None, None]  # the second is farther
        assert torch.equal(TopKPFL(k=2).mixture(z), expected)

    @pytest.mark.parametrize("n", [4, 200])
    def test_of_equals_oneself_and_then_the_earlier(self, n: int) -> None:
        """Predictions of one class for sure, whose cosines are 1 to the bit."""
        c = TopKPFL(k=2).mixture(torch.tensor([1000.0, 0.0, 0.0]).expand(n, 1, -1))
        support = [row.nonzero()[:, 0].tolist() for row in c]
        assert support == [[0, 1], *([0, row] for row in range(1, n))]

    def test_k_of_one_is_oneself(self) -> None:
        assert torch.equal(TopKPFL(k=1).mixture(predictions(6)), torch.eye(6, dtype=torch.float64))

    @pytest.mark.parametrize("k", [5, 1000])
    def test_k_of_all_is_fedmd(self, k: int) -> None:
        """Bit for bit over rounds."""
        schedule = Schedule(rounds=2)
        topk, fedmd = (engine.run(method, toy.federation(), schedule) for method in (TopKPFL(k=k), FedMD()))
        assert toy.same(topk.state.models, fedmd.state.models)
        assert [record.loss for record in topk.history] == [record.loss for record in fedmd.history]
        assert topk.history[-1].traffic == fedmd.history[-1].traffic
        assert torch.equal(topk.coefficients, torch.full((2, 5, 5), 0.2))

    def test_k_of_the_cohort_is_fedmd_in_the_cohort(self) -> None:
        """1/3 and 0.2 / 0.6 may round differently: the tolerance of three rounds in float64."""
        schedule = Schedule(rounds=3, participation=0.6)
        topk, fedmd = (engine.run(m, toy.federation(dtype="float64"), schedule) for m in (TopKPFL(k=3), FedMD()))
        assert toy.distance(topk.state.models, fedmd.state.models) < 1e-12
        assert toy.distance(topk.state.models, toy.federation(dtype="float64").initial_models()) > 1e-2

    def test_k_of_one_is_local_training(self) -> None:
        """Who is taught its own prediction has no gradient: C = I, float64."""
        fed = toy.federation(dtype="float64")
        one, alone = (method.round(method.init(fed), EVERYONE, 1, fed)[0] for method in (TopKPFL(k=1), Local()))
        assert toy.distance(one.models, alone.models) < 1e-14
        many, _ = TopKPFL(k=2).round(TopKPFL().init(fed), EVERYONE, 1, fed)
        assert toy.distance(many.models, alone.models) > 1e-4


@pytest.mark.parametrize("method", MIXTURES, ids=str)
@pytest.mark.parametrize("cohort", [[20, 3, 11], [12]], ids=["three", "one"])
class TestRound:
    def test_step_by_step(self, method: Any, cohort: list[int]) -> None:
        """Of this round's predictions, at the temperatures of similarity and of distillation."""
        method = type(method)(**{**asdict(method), "temperature": 1.5})
        distillation = Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0)
        fed = toy.federation(dtype="float64", distillation=distillation)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, cohort, 2, fed)
        trained = fed.train({n: before.models[n] for n in cohort}, 2)
        z = fed.logits(trained, fed.public_batch(2))
        c = method.mixture(z)
        s = torch.softmax(z / 2.0, dim=2)
        size = len(cohort)
        teachers = torch.stack([sum(c[n, m] * s[m] for m in range(size)) for n in range(size)])
        distilled = fed.distill(trained, teachers, fed.public_batch(2), 2)
        assert toy.distance({n: after.models[n] for n in cohort}, distilled) < 1e-14
        assert toy.same(report.after_local, trained)

    def test_reports_the_cohorts_weights_and_nothing_is_kept(self, method: Any, cohort: list[int]) -> None:
        fed = toy.federation()
        start = method.init(fed)
        _, report = method.round(start, cohort, 1, fed)
        trained = fed.train({n: start.models[n] for n in cohort}, 1)
        c = method.mixture(fed.logits(trained, fed.public_batch(1)))
        for row, n in enumerate(EVERYONE):
            for column, m in enumerate(EVERYONE):
                both = n in cohort and m in cohort
                expected = c[cohort.index(n), cohort.index(m)].item() if both else float(n == m)
                assert report.coefficients[row, column] == expected
        assert vars(start).keys() == {"models"}


def test_the_teacher_is_the_mixture_at_the_temperature_of_distillation() -> None:
    """Weights by hand of predictions that were scripted: a third class that nobody expects changes no cosine."""
    probabilities = torch.tensor([[[0.8, 0.2, 0.0]], [[0.2, 0.8, 0.0]], [[0.5, 0.5, 0.0]]], dtype=torch.float64)
    taught = toy.teachers(SimPFL(temperature=1.0), probabilities.clamp_min(1e-30).log(), dtype="float64")
    own = (1 - FAR) / ((1 - FAR) + (NEAR - FAR))
    first = 0.8 * own + 0.5 * (1 - own)
    assert taught[3][0].tolist() == pytest.approx([first, 1 - first, 0.0], abs=1e-14)
    assert taught[7][0].tolist() == pytest.approx([1 - first, first, 0.0], abs=1e-14)
    assert taught[11][0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-14)


def test_defaults() -> None:
    assert asdict(create("sim_pfl")) == {"weights": "minmax", "temperature": 3.0}
    assert asdict(create("topk_pfl")) == {"k": 5, "temperature": 1.0}
