"""FedFomo: weights worked by hand, who keeps what it has, which candidates are sent."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Models, vector_of
from ktpfl_pipeline.methods.fedfomo import FedFomo, FedFomoState, normalized, validation_losses, worth

EVERYONE = list(toy.IDS)
EXPLOIT = FedFomo(candidates=5, explore=0.0)


class Judge(SerialExecutor):
    """Says what losses candidates have on validation data: by client, θ_old first, then its own model, then others."""

    def __init__(self, losses: dict[int, list[float]]) -> None:
        super().__init__()
        self.verdict = losses

    def outcomes(self, setting: Setting, phase: str, *rest: Any) -> dict[Any, Outcome[Any]]:
        if phase == "validate":
            return {n: Outcome(torch.tensor(losses, dtype=torch.float64)) for n, losses in self.verdict.items()}
        return super().outcomes(setting, phase, *rest)


def judged(*losses: float) -> tuple[FedFomoState, FedFomoState, Any, Federation]:
    """Return the state before and after a round of client 7 alone, who finds these losses, and its report.

    Nobody trains. Model m lies at w0 + m in every weight, client 7's θ_old at w0 - 1; affinities rank 20, 3, 12, 11.
    """
    fed = toy.alike(dtype="float64", training=LocalTraining(epochs=0), executor=Judge({7: list(losses)}))
    models = {n: {k: v + n for k, v in params.items()} for n, params in fed.initial_models().items()}
    starts = {n: {k: v - 1.0 for k, v in params.items()} for n, params in fed.initial_models().items()}
    affinity = torch.zeros(5, 5, dtype=torch.float64)
    affinity[1] = torch.tensor([3.0, 0.5, 1.0, 2.0, 4.0])
    state = FedFomoState(models, starts, affinity)
    after, report = EXPLOIT.round(state, [7], 2, fed)
    return state, after, report, fed


def test_losses_of_candidates_are_those_of_an_evaluation_bit_for_bit_and_nothing_else_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = toy.alike()
    models = fed.train(fed.initial_models(), 1)
    expected = [fed.evaluate({7: params}, "validation")[7].loss for params in models.values()]
    monkeypatch.setattr(operations, "measures", None)
    found = fed.run("validate", validation_losses, {7: (list(models.values()),)})[7]
    assert (found.dtype, found.tolist()) == (torch.float64, expected)


ROOT = 195**0.5  # of the number of weights: the distance of models that differ by 1 everywhere


class TestWeights:
    def test_equal_losses_keep_the_own_start_and_average_nothing(self) -> None:
        before, after, report, _ = judged(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
        assert toy.same(after.models[7], before.starts[7])
        assert toy.same(after.affinity, before.affinity)
        assert torch.equal(report.coefficients, torch.eye(5).double())

    def test_if_all_are_worse_nothing_changes(self) -> None:
        before, after, _, _ = judged(1.0, 1.5, 2.0, 3.0, 1.1, 9.0)
        assert toy.same(after.models[7], before.starts[7])

    @pytest.mark.parametrize(("place", "n"), [(1, 7), (2, 20), (3, 3), (4, 12), (5, 11)])
    def test_the_only_better_model_is_copied(self, place: int, n: int) -> None:
        """Bit for bit, by whatever little it is better."""
        losses = [1.0] + [2.0] * 5
        losses[place] = 0.99
        before, after, report, _ = judged(*losses)
        assert toy.same(after.models[7], before.models[n])
        assert report.coefficients[1].tolist() == [float(m == n) for m in EVERYONE]

    def test_two_better_models_by_hand(self) -> None:
        """Gains 0.5 at a distance of 21 and 0.25 at one of 4, in units of the root: 0.5 / 21 and 0.25 / 4."""
        before, after, report, fed = judged(1.0, 2.0, 0.5, 0.75, 1.0, 1.2)
        far, near = 0.5 / (21 * ROOT + 1e-5), 0.25 / (4 * ROOT + 1e-5)
        share = far / (far + near)
        found = vector_of(after.models[7], fed.trained_names) - vector_of(before.starts[7], fed.trained_names)
        expected = share * 21 + (1 - share) * 4
        assert torch.allclose(found, torch.full((195,), expected, dtype=torch.float64), rtol=0, atol=1e-12)
        assert report.coefficients[1].tolist() == pytest.approx([1 - share, 0, 0, 0, share], abs=1e-15)

    def test_gains_are_reported_unnormalized(self) -> None:
        """Losses that grew too; own, 20, 3, 12, 11."""
        before, after, _, _ = judged(1.0, 0.9, 0.5, 1.75, 1.0, 1.2)
        gains = {7: 0.1 / (8 * ROOT), 20: 0.5 / (21 * ROOT), 3: -0.75 / (4 * ROOT), 12: 0.0, 11: -0.2 / (12 * ROOT)}
        change = (after.affinity - before.affinity)[1]
        assert change.tolist() == pytest.approx([gains[n] for n in EVERYONE], rel=1e-6, abs=1e-15)
        others = [0, 2, 3, 4]
        assert torch.equal(after.affinity[others], before.affinity[others])

    def test_a_candidate_where_one_is_has_no_worth(self) -> None:
        here = {"w": torch.tensor([1.0, 2.0])}
        assert worth(
            here, [here, {"w": torch.tensor([4.0, 6.0])}], torch.tensor([1.0, 1.0, 0.0]), ["w"]
        ).tolist() == pytest.approx([0.0, 1 / 5], rel=1e-5)

    def test_weights_are_a_distribution_or_none(self) -> None:
        assert normalized(torch.tensor([1.0, -5.0, 3.0])).tolist() == [0.25, 0.0, 0.75]
        assert normalized(torch.tensor([-1.0, 0.0])) is None

    def test_in_a_run_rows_are_distributions(self) -> None:
        run = engine.run(FedFomo(candidates=3), toy.alike("both"), Schedule(rounds=4, participation=0.6))
        assert (run.coefficients >= 0).all()
        assert torch.allclose(run.coefficients.sum(dim=2), torch.ones(4, 5), rtol=0, atol=1e-6)
        assert (run.coefficients[-1] - torch.eye(5)).abs().max() > 0.01

    def test_losses_are_of_the_validation_split(self) -> None:
        """Other images there change the models; other test images do not."""
        fed = toy.alike()
        found = []
        for changes in ({}, {"validation": toy.samples(6, seed=77)}, {"test": toy.samples(15, seed=78)}):
            clients = tuple(replace(client, **changes) for client in fed.clients)
            found.append(engine.run(FedFomo(), toy.again(fed, clients=clients), Schedule(rounds=3)).state)
        assert not toy.same(found[0], found[1])
        assert toy.same(found[0], found[2])


class TestCandidates:
    @staticmethod
    def chosen(method: FedFomo, t: int = 1, seed: int = 0, seen: tuple[int, ...] = toy.IDS) -> list[int]:
        fed = toy.alike(seed=seed)
        models: Models = {n: params for n, params in fed.initial_models().items() if n in seen}
        affinity = torch.zeros(5, 5, dtype=torch.float64)
        affinity[1] = torch.tensor([3.0, 9.0, 1.0, 2.0, 4.0])
        state = FedFomoState(models, models, affinity)
        return method.choose(state, 7, t, fed)

    @pytest.mark.parametrize(("candidates", "expected"), [(1, []), (2, [20]), (4, [20, 3, 12]), (9, [20, 3, 12, 11])])
    def test_the_most_promising_and_never_oneself(self, candidates: int, expected: list[int]) -> None:
        assert self.chosen(FedFomo(candidates, explore=0.0)) == expected

    def test_of_equals_some_are_drawn_and_not_the_first_by_id(self) -> None:
        fed, method = toy.alike(), FedFomo(3, explore=0.0)
        models = fed.initial_models()
        state = FedFomoState(models, models, torch.eye(5, dtype=torch.float64))
        found = {(n, t): tuple(sorted(method.choose(state, n, t, fed))) for n in EVERYONE for t in range(1, 9)}
        assert {m for pair in found.values() for m in pair} == set(EVERYONE)
        assert all(len({found[n, t] for t in range(1, 9)}) > 1 for n in EVERYONE)
        assert method.choose(state, 7, 1, fed) == method.choose(state, 7, 1, toy.again(fed))

    def test_only_clients_that_have_uploaded_are_sent(self) -> None:
        assert self.chosen(FedFomo(3, explore=0.0), seen=(7, 11, 12)) == [12, 11]
        assert self.chosen(FedFomo(3), seen=(7,)) == []

    def test_exploring_swaps_for_others(self) -> None:
        drawn = [self.chosen(FedFomo(2, explore=1.0, decay=0.0), seed=seed) for seed in range(20)]
        assert {n for (n,) in drawn} == {3, 11, 12}  # always another than the best, 20

    def test_exploring_decays_from_the_second_round_on(self) -> None:
        method = FedFomo(2, explore=1.0, decay=1.0)
        first, second = ([self.chosen(method, t, seed) for seed in range(5)] for t in (1, 2))
        assert [20] not in first
        assert second == [[20]] * 5

    def test_no_candidate_occurs_twice(self) -> None:
        for seed in range(20):
            found = self.chosen(FedFomo(4, explore=0.7, decay=0.0), seed=seed)
            assert len(set(found)) == 3
            assert 7 not in found


class TestRound:
    def test_the_first_is_local_training(self) -> None:
        fed = toy.alike("both")
        after, _ = FedFomo().round(FedFomo().init(fed), EVERYONE, 1, fed)
        assert toy.same(after.models, fed.train(fed.initial_models(), 1))
        assert toy.same(after.starts, fed.initial_models())

    def test_trains_on_from_the_mixture(self) -> None:
        fed = toy.alike("both")
        before, _ = FedFomo().round(FedFomo().init(fed), EVERYONE, 1, fed)
        after, report = FedFomo().round(before, [3, 20], 2, fed)
        assert toy.same(report.after_local, fed.train({n: after.starts[n] for n in (3, 20)}, 2))
        assert toy.same({n: after.models[n] for n in (3, 20)}, report.after_local)

    @pytest.mark.parametrize(("candidates", "others"), [(1, 0), (3, 2), (5, 4), (9, 4)])
    def test_bytes(self, candidates: int, others: int) -> None:
        """195 weights: one's own model up with what was found of it and of the others; theirs down."""
        fed, method = toy.alike(), FedFomo(candidates)
        state, first = method.round(method.init(fed), EVERYONE, 1, fed)
        _, second = method.round(state, [3, 11], 2, fed)
        up = 4 * 195
        assert first.traffic == dict.fromkeys(EVERYONE, Traffic(coefficients_up=4, parameters_up=up))
        expected = Traffic(coefficients_up=4 * (others + 1), parameters_up=up, parameters_down=others * up)
        assert second.traffic == {3: expected, 11: expected}

    def test_a_client_without_validation_images_is_refused(self) -> None:
        fed = toy.alike()
        nothing = LabeledDataset(fed.clients[0].validation.inputs[:0], fed.clients[0].validation.labels[:0])
        clients = (fed.clients[0], replace(fed.clients[1], validation=nothing))
        with pytest.raises(InputError, match=r"client 7 has none: set partition\.validation_share higher\.$"):
            engine.run(FedFomo(), toy.again(fed, clients=clients), engine.Schedule(1))
