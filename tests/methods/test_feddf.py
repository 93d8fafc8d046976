"""FedDF, its soft variant, and pFedDF."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.weights import Params, average
from ktpfl_pipeline.methods.feddf import FedDF, FedDFSoft, PFedDF, PFedDFSoft
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.local import Local

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Federation

EVERYONE = list(toy.IDS)
OF = {3: "linear", 7: "conv", 11: "mlp", 12: "linear", 20: "conv"}
NO_DISTILLATION = Distillation(epochs=0)
SCHEDULE = Schedule(rounds=3, participation=0.6)

# Linear 64·3 + 3; conv 4·9 + 4, BatchNorm's four times 4, 36·3 + 3; mlp 64·12 + 12, 12·3 + 3.
BYTES = {"linear": 4 * 195, "conv": 4 * (40 + 16 + 111), "mlp": 4 * (780 + 39)}

# Two samples of three classes from four clients, whose mean logits are (2, 0, 1) and (0, 0, 3).
LOGITS = torch.tensor(
    [
        [[8.0, 0.0, 0.0], [1.0, 2.0, 3.0]],
        [[0.0, 1.0, 0.0], [-1.0, 0.0, 3.0]],
        [[0.0, -1.0, 4.0], [0.0, -2.0, 3.0]],
        [[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]],
    ]
)
MEAN = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 3.0]], dtype=torch.float64)


@cache
def run_of(method: FedDF) -> Run:
    return engine.run(method, toy.federation(), SCHEDULE)


class TestTeacher:
    @pytest.mark.parametrize("method", [FedDF(), PFedDF(), FedDFSoft()], ids=str)
    @pytest.mark.parametrize("temperature", [1.0, 4.0])
    def test_is_softmax_of_the_mean_logits_of_all(self, method: Any, temperature: float) -> None:
        """By hand; one teacher for all, whatever their architecture and numbers of images."""
        distillation = Distillation(epochs=1, batch_size=8, learning_rate=0.05, temperature=temperature)
        taught = toy.teachers(method, LOGITS, distillation=distillation)
        exponentials = (MEAN / temperature).exp()
        expected = exponentials / exponentials.sum(dim=1, keepdim=True)
        assert set(taught) == ({3, 7, 11, 12} if isinstance(method, FedDFSoft) else {"linear", "conv", "mlp"})
        for teacher in taught.values():
            assert torch.allclose(teacher, expected, rtol=0, atol=1e-15)

    @pytest.mark.parametrize("method", [FedDF(), FedDFSoft()], ids=str)
    def test_is_of_the_cohort_only(self, method: Any) -> None:
        for teacher in toy.teachers(method, LOGITS, cohort=[7, 12]).values():
            expected = torch.softmax((LOGITS[1] + LOGITS[3]).double() / 2, dim=1)
            assert torch.allclose(teacher, expected, rtol=0, atol=1e-15)

    def test_of_fedmd_averages_probabilities_instead(self) -> None:
        """One client that is sure decides an average of logits, and not one of probabilities."""
        logits = torch.tensor([[[30.0, 0.0, 0.0]], [[0.0, 3.0, 0.0]], [[0.0, 3.0, 0.0]]])
        (soft, md) = (toy.teachers(method, logits)[3][0] for method in (FedDFSoft(), FedMD()))
        assert soft[0] > 0.999
        assert md[0] == pytest.approx((1 + 2 / (2 + torch.e**3)) / 3, abs=1e-12)


class TestFusion:
    def test_a_round_step_by_step(self) -> None:
        """Train from the prototypes, average within the architecture by D_n, distill the ensemble into the averages."""
        fed = toy.federation(distillation=Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0))
        before, _ = FedDF().round(FedDF().init(fed), EVERYONE, 1, fed)
        cohort = [3, 7, 12]  # two linear models, one convolutional
        after, report = FedDF().round(before, cohort, 2, fed)
        trained = fed.train({n: before.prototypes[OF[n]] for n in cohort}, 2)
        linear = {name: (16 * trained[3][name].double() + 9 * trained[12][name].double()) / 25 for name in trained[3]}
        start = {"conv": trained[7], "linear": {name: value.float() for name, value in linear.items()}}
        mean = sum(fed.logits({n: trained[n]}, fed.public_batch(2))[0].double() for n in cohort) / 3
        fused = fed.distill(start, torch.softmax(mean / 2.0, dim=1), fed.public_batch(2), 2)
        assert after.prototypes.keys() == {"linear", "conv", "mlp"}
        assert difference(after.prototypes["conv"], fused["conv"]) < 1e-6
        assert difference(after.prototypes["linear"], fused["linear"]) < 1e-6
        assert difference(fused["linear"], start["linear"]) > 1e-3
        assert after.prototypes["mlp"] is before.prototypes["mlp"]  # nobody sampled has it
        assert toy.same(report.after_local, trained)
        assert report.coefficients is None

    def test_of_one_architecture_without_distillation_is_fedavg(self) -> None:
        """Bit for bit, over rounds with cohorts; BatchNorm's means and variances are averaged like weights."""
        fed = toy.federation(architectures=("conv",), distillation=NO_DISTILLATION)
        run = engine.run(FedDF(), fed, SCHEDULE)
        model = fed.initial_model("conv")
        for record in run.history:
            trained = fed.train(dict.fromkeys(record.cohort, model), record.round)
            sizes = torch.tensor([len(fed.by_id[n].train) for n in record.cohort], dtype=torch.float64)
            model = average([trained[n] for n in record.cohort], sizes / sizes.sum())
        assert toy.same(run.state.prototypes, {"conv": model})
        assert toy.same(FedDF().personal(run.state, EVERYONE, fed), dict.fromkeys(EVERYONE, model))

    def test_fedavg_by_hand(self) -> None:
        fed = toy.federation(2, architectures=("linear",), dtype="float64", distillation=NO_DISTILLATION)
        after, report = FedDF().round(FedDF().init(fed), [3, 7], 1, fed)
        for name, value in after.prototypes["linear"].items():
            one, other = (report.after_local[n][name] for n in (3, 7))
            assert torch.allclose(value, (16 * one + 17 * other) / 33, rtol=0, atol=1e-15)

    def test_of_one_client_an_architecture_without_distillation_is_local_training(self) -> None:
        """So nothing is averaged across architectures."""
        fed = toy.federation(3, distillation=NO_DISTILLATION)
        run, alone = (engine.run(method, fed, SCHEDULE) for method in (FedDF(), Local()))
        assert toy.same(FedDF().personal(run.state, [3, 7, 11], fed), alone.state.models)

    def test_identical_clients_have_nothing_to_learn(self) -> None:
        """Who did not train is its prototype, whose own prediction is the ensemble's: no gradient, in float64."""
        training = LocalTraining(epochs=0)
        for architecture in (*toy.ARCHITECTURES, "both"):
            fed = toy.federation(architectures=(architecture,), dtype="float64", training=training)
            after, _ = FedDF().round(FedDF().init(fed), EVERYONE, 1, fed)
            assert difference(after.prototypes[architecture], fed.initial_model(architecture)) < 1e-14

    def test_the_ensemble_teaches_architectures_outside_it(self) -> None:
        """An architecture's other clients use the fused prototype; others keep theirs."""
        fed = toy.federation()
        start = FedDF().init(fed)
        after, _ = FedDF().round(start, [3], 1, fed)
        personal = FedDF().personal(after, EVERYONE, fed)
        assert personal[12] is personal[3]
        assert not toy.same(personal[12], fed.initial_models()[12])
        assert all(toy.same(personal[n], fed.initial_models()[n]) for n in (7, 11, 20))

    def test_starts_from_the_common_initial_models(self) -> None:
        fed = toy.federation()
        assert toy.same(FedDF().personal(FedDF().init(fed), EVERYONE, fed), fed.initial_models())


class TestPFedDF:
    @pytest.mark.parametrize("epochs", [None, 0, 3])
    def test_the_servers_trajectory_is_feddfs(self, epochs: int | None) -> None:
        """Bit for bit, though its fine-tuned copies were evaluated each round: they are never fed back."""
        one, other = (run_of(method) for method in (PFedDF(epochs=epochs), FedDF()))
        assert toy.same(one.state, other.state)
        for record, counterpart in zip(one.history, other.history, strict=True):
            assert record.loss["train"] == counterpart.loss["train"]
            assert record.loss["fuse"] == counterpart.loss["fuse"]
            assert record.traffic == counterpart.traffic

    def test_without_epochs_it_is_feddf(self) -> None:
        one, other = (run_of(method) for method in (PFedDF(epochs=0), FedDF()))
        assert [record.accuracy for record in one.history] == [record.accuracy for record in other.history]
        fed = toy.federation()
        assert toy.same(
            PFedDF(epochs=0).personal(one.state, EVERYONE, fed), FedDF().personal(other.state, EVERYONE, fed)
        )

    @pytest.mark.parametrize(("epochs", "expected"), [(None, 2), (1, 1), (4, 4)])
    def test_each_client_fine_tunes_a_copy(self, epochs: int | None, expected: int) -> None:
        fed = toy.federation()
        state, _ = PFedDF().round(PFedDF().init(fed), EVERYONE, 1, fed)
        tuned = PFedDF(epochs=epochs).personal(state, EVERYONE, fed)
        longer = toy.again(fed, training=replace(fed.training, epochs=expected))
        assert toy.same(tuned, longer.train({n: state.prototypes[OF[n]] for n in EVERYONE}, 0))
        assert not toy.same(tuned[3], tuned[12])  # of one architecture
        assert not toy.same(tuned[3], state.prototypes["linear"])

    def test_evaluating_again_gives_the_same_and_changes_nothing(self) -> None:
        fed = toy.federation()
        state, _ = PFedDF().round(PFedDF().init(fed), EVERYONE, 1, fed)
        kept = {name: {key: value.clone() for key, value in p.items()} for name, p in state.prototypes.items()}
        one, other = (PFedDF().personal(state, EVERYONE, fed) for _ in range(2))
        assert toy.same(one, other)
        assert toy.same(state.prototypes, kept)


class TestSoft:
    @pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11], [12]], ids=["all", "three", "one"])
    def test_a_round_distills_the_average_of_the_logits(self, cohort: list[int]) -> None:
        fed = toy.federation(distillation=Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0))
        after, report = FedDFSoft().round(FedDFSoft().init(fed), cohort, 1, fed)
        trained = fed.train({n: fed.initial_models()[n] for n in cohort}, 1)
        mean = sum(z.double() for z in fed.logits(trained, fed.public_batch(1))) / len(cohort)
        teacher = torch.softmax(mean / 2.0, dim=1).expand(len(cohort), -1, -1)
        expected = fed.distill(trained, teacher, fed.public_batch(1), 1)
        assert toy.distance({n: after.models[n] for n in cohort}, expected) < 1e-6
        assert toy.same(report.after_local, trained)

    def test_clients_of_one_architecture_keep_models_of_their_own(self) -> None:
        fed = toy.federation()
        after, _ = FedDFSoft().round(FedDFSoft().init(fed), EVERYONE, 1, fed)
        assert not toy.same(after.models[3], after.models[12])


class TestTraffic:
    @pytest.mark.parametrize("method", [FedDF(), PFedDF()], ids=str)
    @pytest.mark.parametrize("cohort", [EVERYONE, [11, 7]], ids=["all", "two"])
    def test_a_model_up_and_a_model_down(self, method: FedDF, cohort: list[int]) -> None:
        """The server holds the public set, so that nothing else travels."""
        fed = toy.federation(public_transport="float32")
        _, report = method.round(method.init(fed), cohort, 1, fed)
        expected = {n: Traffic(parameters_up=BYTES[OF[n]], parameters_down=BYTES[OF[n]]) for n in cohort}
        assert report.traffic == expected

    def test_of_the_soft_variant_is_predictions(self) -> None:
        """13 public samples of 64 pixels and three classes, as in FedMD."""
        fed: Federation = toy.federation()
        _, report = FedDFSoft().round(FedDFSoft().init(fed), [3, 20], 1, fed)
        expected = Traffic(predictions_up=4 * 13 * 3, predictions_down=4 * 13 * 3, public_down=13 * 64)
        assert report.traffic == {3: expected, 20: expected}


def difference(one: Params, other: Params) -> float:
    return toy.distance({0: one}, {0: other})


def test_pfeddf_as_the_paper_ran_it_is_the_soft_variant_fine_tuned() -> None:
    """No parameters travel, and rounds are FedDF's: only what is evaluated is fine-tuned."""
    fed = toy.federation()
    soft, tuned = (engine.run(method, toy.federation(), SCHEDULE) for method in (FedDFSoft(), PFedDFSoft(epochs=2)))
    same = [toy.same(soft.state.models[n], tuned.state.models[n]) for n in EVERYONE]
    assert all(same)
    assert {name for record in tuned.history for name, sizes in record.traffic.items() if sum(sizes)} == {
        *("knowledge_up", "knowledge_down", "public_down")
    }
    expected = fed.fine_tune(soft.state.models, 2)
    found = PFedDFSoft(epochs=2).personal(tuned.state, EVERYONE, fed)
    assert all(toy.same(found[n], expected[n]) for n in EVERYONE)
