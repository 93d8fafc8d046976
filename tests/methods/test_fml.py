"""FML: what travels is the common model, and who listens to labels alone trains as if alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Params, average
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fml import FML
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.methods.shared import mutual

EVERYONE = list(toy.IDS)
SCHEDULE = Schedule(rounds=3, participation=0.6)


@cache
def trained_alone() -> Run:
    return engine.run(Local(), toy.federation(), SCHEDULE)


def fedavg(fed: Federation, cohorts: list[list[int]], architecture: str) -> Params:
    """Return the common model that FedAvg has after rounds with these cohorts, clients weighing what they hold."""
    same = toy.again(fed, clients=tuple(replace(client, architecture=architecture) for client in fed.clients))
    model = same.initial_model(architecture)
    for t, cohort in enumerate(cohorts, start=1):
        trained = same.train(dict.fromkeys(cohort, model), t)
        sizes = torch.tensor([len(fed.by_id[n].train) for n in cohort], dtype=torch.float64)
        model = average([trained[n] for n in cohort], sizes / sizes.sum())
    return model


class TestLimits:
    @pytest.mark.parametrize("common", ["linear", "conv"])
    def test_with_only_labels_it_is_local_training_and_fedavg(self, common: str) -> None:
        """Alpha = beta = 1, bit for bit; the common architecture has no dropout, whose stream is its own."""
        run = engine.run(FML(common, alpha=1.0, beta=1.0), toy.federation(), SCHEDULE)
        alone = trained_alone()
        assert toy.same(run.state.models, alone.state.models)
        assert [record.accuracy for record in run.history] == [record.accuracy for record in alone.history]
        assert toy.same(run.state.common, fedavg(toy.federation(), [record.cohort for record in run.history], common))

    def test_with_alpha_1_own_models_are_local_training(self) -> None:
        alone = trained_alone()
        for common, beta in (("linear", 0.0), ("mlp", 0.3), ("both", 1.0)):
            run = engine.run(FML(common, alpha=1.0, beta=beta), toy.federation(), SCHEDULE)
            assert toy.same(run.state.models, alone.state.models)

    def test_with_beta_1_the_common_model_is_fedavg(self) -> None:
        for alpha in (0.0, 0.5):
            run = engine.run(FML("conv", alpha=alpha, beta=1.0), toy.federation(), SCHEDULE)
            cohorts = [record.cohort for record in run.history]
            assert toy.same(run.state.common, fedavg(toy.federation(), cohorts, "conv"))
            assert not toy.same(run.state.models, trained_alone().state.models)

    @pytest.mark.parametrize(("alpha", "beta", "blind"), [(0.0, 0.0, True), (0.0, 0.5, False), (0.5, 0.0, False)])
    def test_with_0_no_model_sees_labels(self, alpha: float, beta: float, blind: bool) -> None:
        """Where both listen to each other alone, other labels change nothing."""
        fed, method = toy.federation(), FML("linear", alpha, beta)
        relabeled = toy.again(
            fed,
            clients=tuple(
                replace(client, train=replace(client.train, labels=(client.train.labels + 1) % 3))
                for client in fed.clients
            ),
        )
        one, other = (method.round(method.init(these), EVERYONE, 1, these)[0] for these in (fed, relabeled))
        assert toy.same(one.models, other.models) == blind
        assert toy.same(one.common, other.common) == blind

    def test_twins_have_nothing_to_teach(self) -> None:
        """Where own and common model are one linear model, only half of each label's pull is left: half the step."""
        fed = toy.federation(architectures=("linear",), dtype="float64")
        after, _ = FML("linear").round(FML("linear").init(fed), EVERYONE, 1, fed)
        slower = toy.again(fed, training=replace(fed.training, learning_rate=fed.training.learning_rate / 2))
        trained = slower.train(fed.initial_models(), 1)
        assert toy.distance(after.models, trained) < 1e-14
        assert toy.distance({0: after.common}, {0: average(list(trained.values()), fed.data_weights(EVERYONE))}) < 1e-14


class TestRound:
    @pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11], [12]], ids=["all", "three", "one"])
    def test_step_by_step(self, cohort: list[int]) -> None:
        """Everyone of the cohort gets the same common model; copies are averaged by the numbers of images."""
        fed, method = toy.federation(), FML("mlp", alpha=0.3, beta=0.8)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, cohort, 2, fed)
        models = {n: before.models[n] for n in cohort}
        pairs = models, dict.fromkeys(models, before.common)
        trained, copies = fed.train_together(mutual.train_pair, pairs, 2, method.architecture(fed), method.loss)
        images = dict(zip(toy.IDS, toy.SIZES, strict=True))
        total = sum(images[n] for n in cohort)
        for name, value in after.common.items():
            expected = sum(images[n] * copies[n][name].double() for n in cohort) / total
            assert torch.allclose(value.double(), expected, rtol=0, atol=1e-7)
        assert toy.same({n: after.models[n] for n in cohort}, trained)
        assert all(after.models[n] is before.models[n] for n in EVERYONE if n not in cohort)
        assert toy.distance({0: after.common}, {0: before.common}) > 1e-3
        assert toy.same(report.after_local, trained)
        assert report.coefficients is None

    def test_the_common_model_starts_as_its_architecture_does(self) -> None:
        """As everybody's of that architecture, of which there need be none."""
        fed = toy.federation()
        state = FML("both").init(fed)
        assert toy.same(state.common, fed.initial_model("both"))
        assert toy.same(state.models, fed.initial_models())
        assert toy.same(FML("conv").init(fed).common, state.models[7])
        assert toy.same(FML().init(fed).common, fed.initial_model("conv"))  # of linear, conv and mlp the smallest

    def test_only_the_common_model_carries_knowledge(self) -> None:
        """What client 7 learns in round 2 depends on client 3's images in round 1, and not in round 2."""

        def of_7(changed: int | None, cohorts: list[list[int]]) -> Params:
            plain = toy.federation()
            other = replace(plain.clients[0], train=toy.samples(16, seed=77))
            method, state = FML("linear"), FML("linear").init(plain)
            for t, cohort in enumerate(cohorts, start=1):
                fed = toy.again(plain, clients=(other, *plain.clients[1:])) if t == changed else plain
                state, _ = method.round(state, cohort, t, fed)
            return state.models[7]

        assert not toy.same(of_7(None, [[3, 7], [3, 7]]), of_7(1, [[3, 7], [3, 7]]))
        assert toy.same(of_7(None, [[3, 7], [3, 7]]), of_7(2, [[3, 7], [3, 7]]))
        assert toy.same(of_7(None, [[3], [7]]), of_7(2, [[3], [7]]))


class TestTraffic:
    @pytest.mark.parametrize(
        ("common", "parameters"),
        [("linear", 64 * 3 + 3), ("conv", (4 * 9 + 4) + 4 * 4 + (36 * 3 + 3)), ("mlp", (64 * 12 + 12) + (12 * 3 + 3))],
    )
    @pytest.mark.parametrize("cohort", [EVERYONE, [7, 12]], ids=["all", "two"])
    def test_the_common_model_up_and_down(self, common: str, parameters: int, cohort: list[int]) -> None:
        """Whatever the own one is: four bytes a number, BatchNorm's means and variances among them."""
        fed = toy.federation()
        _, report = FML(common).round(FML(common).init(fed), cohort, 1, fed)
        expected = Traffic(parameters_up=4 * parameters, parameters_down=4 * parameters)
        assert report.traffic == dict.fromkeys(cohort, expected)


@pytest.mark.parametrize("given", [{}, {"alpha": 0.0, "beta": 1.0}], ids=str)
def test_defaults_and_limits(given: dict[str, Any]) -> None:
    assert create("fml", given) == FML(**{"common": None, "alpha": 0.5, "beta": 0.5, **given})
