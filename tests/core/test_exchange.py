"""The exchange of soft predictions: what goes up, what is mixed, what comes down, and how many bytes that is."""

import copy
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.exchange import Upload
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import PersonalState
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Adversaries, Distillation, Knowledge
from ktpfl_pipeline.core.weights import select
from ktpfl_pipeline.methods import create

COHORT = [20, 3, 11]  # rows 4, 0 and 2 of the federation
ROWS = [4, 0, 2]
MIXTURE = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]], dtype=torch.float64)


@pytest.fixture
def fed() -> Federation:
    return toy.federation(distillation=Distillation(epochs=2, batch_size=8, learning_rate=0.05, temperature=2.0))


@pytest.fixture
def state(fed: Federation) -> PersonalState:
    """Models that differ within an architecture too."""
    return PersonalState(fed.train(fed.initial_models(), 1))


@pytest.fixture
def upload(fed: Federation, state: PersonalState) -> Upload:
    return exchange.train_and_predict(fed, state.models, COHORT, 2)


class TestTrainAndPredict:
    def test_is_training_and_then_predicting_the_public_batch(
        self, fed: Federation, state: PersonalState, upload: Upload
    ) -> None:
        trained = fed.train(select(state.models, COHORT), 2)
        assert list(upload.models) == COHORT
        assert toy.same(upload.models, trained)
        assert torch.equal(upload.batch, fed.public_batch(2))
        assert torch.equal(upload.logits, fed.logits(trained, fed.public_batch(2)))

    def test_soft_predictions_have_the_temperature_of_distillation(self, upload: Upload) -> None:
        exponentials = (upload.logits.double() / 2.0).exp()
        assert upload.soft.dtype == torch.float64
        expected = exponentials / exponentials.sum(dim=2, keepdim=True)
        assert torch.allclose(upload.soft, expected, rtol=0, atol=1e-15)

    def test_leaves_the_models_as_they_were(self, fed: Federation, state: PersonalState) -> None:
        before = copy.deepcopy(state.models)
        exchange.train_and_predict(fed, state.models, COHORT, 2)
        assert toy.same(state.models, before)


class TestTeach:
    def test_distills_each_clients_own_teacher(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        teachers = upload.soft.roll(1, dims=0)
        after, report = exchange.teach(fed, state, upload, teachers, 2)
        for n, teacher in zip(COHORT, teachers, strict=True):
            alone = fed.distill({n: upload.models[n]}, teacher[None], upload.batch, 2)[n]
            assert toy.same(after.models[n], alone)
            assert not toy.same(alone, upload.models[n])
        assert report.after_local is upload.models
        assert report.coefficients is None

    def test_one_teacher_for_all(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        consensus = upload.soft.mean(dim=0)
        one, _ = exchange.teach(fed, state, upload, consensus, 2)
        each, _ = exchange.teach(fed, state, upload, consensus.repeat(3, 1, 1), 2)
        assert toy.same(one.models, each.models)

    def test_the_absent_keep_their_models(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        before = copy.deepcopy(state.models)
        after, _ = exchange.teach(fed, state, upload, upload.soft, 2)
        assert list(after.models) == list(toy.IDS)
        assert after.models[7] is state.models[7]
        assert after.models[12] is state.models[12]
        assert toy.same(state.models, before)

    def test_bytes_by_hand(self, state: PersonalState) -> None:
        """13 public images of 64 pixels, three classes: 4 x 13 x 3 bytes up, and as many down."""
        for transport, public in {"float32": 13 * 256, "uint8": 13 * 64, "indices": 13 * 4}.items():
            fed = toy.federation(public_transport=transport)
            upload = exchange.train_and_predict(fed, state.models, COHORT, 2)
            _, report = exchange.teach(fed, state, upload, upload.soft, 2)
            expected = Traffic(predictions_up=156, predictions_down=156, public_down=public)
            assert report.traffic == dict.fromkeys(COHORT, expected), transport


class TestTeachMixtures:
    def test_by_hand(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        s = upload.soft
        teachers = torch.stack([0.5 * s[0] + 0.5 * s[1], 0.25 * s[1] + 0.75 * s[2], s[2]])
        mixed, report = exchange.teach_mixtures(fed, state, upload, MIXTURE, 2)
        taught, plain = exchange.teach(fed, state, upload, teachers, 2)
        assert toy.distance(mixed.models, taught.models) < 1e-6
        assert toy.distance(mixed.models, state.models) > 1e-3
        assert report.after_local is upload.models
        assert report.traffic == plain.traffic

    def test_shows_the_weights_among_all_clients(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        """Who is absent learned from nobody but itself."""
        _, report = exchange.teach_mixtures(fed, state, upload, MIXTURE, 2)
        shown: Tensor = report.coefficients
        expected = [
            [0.25, 0.0, 0.75, 0.0, 0.0],  # 3 learns from itself and 11
            [0.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 1.0, 0.0],
            [0.5, 0.0, 0.0, 0.0, 0.5],  # 20 learns from itself and 3
        ]
        assert shown.tolist() == expected
        assert torch.equal(shown[ROWS][:, ROWS], MIXTURE)

    def test_weights_in_float32(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        """These are exact in both types."""
        expected, _ = exchange.teach_mixtures(fed, state, upload, MIXTURE, 2)
        found, report = exchange.teach_mixtures(fed, state, upload, MIXTURE.float(), 2)
        assert toy.same(found.models, expected.models)
        assert report.coefficients.dtype == torch.float64

    @pytest.mark.parametrize("shape", [(5, 5), (3,), (3, 5)], ids=str)
    def test_weights_of_another_shape(
        self, fed: Federation, state: PersonalState, upload: Upload, shape: tuple[int, ...]
    ) -> None:
        with pytest.raises(InputError, match=r"weights of teachers have the shape .*; it must be \(3, 3\)"):
            exchange.teach_mixtures(fed, state, upload, torch.ones(shape), 2)

    def test_alone_with_oneself_nothing_is_learned(self, state: PersonalState) -> None:
        """A teacher that is the student's own prediction has no gradient: float64, eval mode."""
        fed = toy.federation(dtype="float64")
        models = fed.initial_models()
        upload = exchange.train_and_predict(fed, models, COHORT, 1)
        after, _ = exchange.teach_mixtures(fed, PersonalState(models), upload, torch.eye(3).double(), 1)
        assert toy.distance(select(after.models, COHORT), upload.models) < 1e-14


LEAN = {
    "float16": Knowledge("float16"),
    "uint8": Knowledge("uint8"),
    "sign": Knowledge("sign"),
    "top_k": Knowledge("top_k", k=2),
    "cached": Knowledge("uint8", cache=1),
    "selected": Knowledge(select=0.3),
    "all": Knowledge("sign", cache=2, select=0.5),
}
FAMILY = ("kt_pfl", "kt_pfl_likelihood", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "ds_fl", "comet")


def lean(name: str, **settings: Any) -> Federation:
    return toy.federation(knowledge=LEAN[name], **settings)


class TestLeanKnowledge:
    """13 public images of 24, three classes: 39 numbers."""

    def test_bytes_by_hand(self, state: PersonalState) -> None:
        for name, size in {"float16": 78, "uint8": 47, "sign": 9, "top_k": 130}.items():
            fed = lean(name)
            upload = exchange.train_and_predict(fed, state.models, COHORT, 2)
            _, report = exchange.teach(fed, state, upload, upload.soft, 2)
            expected = Traffic(predictions_up=size, predictions_down=size, public_down=832)
            assert report.traffic == dict.fromkeys(COHORT, expected), name

    @pytest.mark.parametrize("name", FAMILY)
    def test_the_family_has_it_for_free(self, name: str) -> None:
        """Each method learns from what was decoded, and its bytes are those of what was encoded.

        With everything at once: signs, a cache and a selection. How each is encoded is tested by itself.
        """
        method, schedule = create(name), Schedule(rounds=2, participation=0.6, evaluate_every=2)
        plain = engine.run(method, toy.federation(), schedule)
        run = engine.run(method, lean("all"), schedule)
        assert toy.finite(run.state)
        assert not toy.same(run.state.models, plain.state.models)
        for own, other in zip(run.history, plain.history, strict=True):
            assert sum(own.traffic["knowledge_up"]) < sum(other.traffic["knowledge_up"])
            assert own.traffic["public_down"] == other.traffic["public_down"]

    def test_the_server_has_what_was_decoded(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
        coarse = toy.again(fed, knowledge=Knowledge("uint8"))
        found = exchange.train_and_predict(coarse, state.models, COHORT, 2)
        assert toy.same(found.models, upload.models)
        assert not torch.equal(found.soft, upload.soft)
        assert (found.soft - upload.soft).abs().max() < 0.02
        assert torch.allclose(torch.softmax(found.logits.double() / 2.0, dim=2), found.soft, rtol=0, atol=1e-12)

    def test_clients_learn_from_what_was_decoded(self, state: PersonalState) -> None:
        """With one class a sample, everybody's teacher is: that class, and equal parts of the rest for the others."""
        fed = toy.federation(knowledge=Knowledge("top_k", k=1))
        upload = exchange.train_and_predict(fed, state.models, COHORT, 2)
        teachers = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).repeat(3, 13, 1)
        after, _ = exchange.teach(fed, state, upload, teachers, 2)
        arrived = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).repeat(3, 13, 1)
        assert toy.same(select(after.models, COHORT), fed.distill(upload.models, arrived, upload.batch, 2))

    def test_a_teacher_that_is_none_is_refused_before_it_is_encoded(self, state: PersonalState) -> None:
        fed = lean("uint8")
        upload = exchange.train_and_predict(fed, state.models, COHORT, 2)
        with pytest.raises(InputError, match="The teacher of 20 is not a distribution"):
            exchange.teach(fed, state, upload, 2 * upload.soft, 2)

    def test_adversaries_lie_before_it_is_encoded(self, state: PersonalState) -> None:
        told, true = (
            exchange.train_and_predict(fed, state.models, list(toy.IDS), 2)
            for fed in (lean("uint8", adversaries=Adversaries(0.4, "reversed")), lean("uint8"))
        )
        liars = toy.federation(adversaries=Adversaries(0.4)).adversary_ids
        for row, n in enumerate(toy.IDS):
            expected = true.soft[row].flip(-1) if n in liars else true.soft[row]
            assert (told.soft[row] - expected).abs().max() < 0.02

    @pytest.mark.parametrize("name", ["cached", "all"])
    def test_resume_and_workers_equal_one_straight_run(self, name: str, tmp_path: Path) -> None:
        """What is fed back, and what is cached, crosses rounds in the checkpoint."""
        method, file = create("kt_pfl"), tmp_path / "run.ckpt"
        schedule = Schedule(rounds=4, participation=0.6, evaluate_every=2)
        straight = engine.run(method, lean(name), schedule)
        with closing(ProcessesExecutor(2)) as workers:
            engine.run(method, lean(name, executor=workers), replace(schedule, rounds=2), checkpoint_file=file)
        resumed = engine.run(method, lean(name), schedule, checkpoint_file=file)
        assert toy.same(resumed.state, straight.state)
        assert [record.traffic for record in resumed.history] == [record.traffic for record in straight.history]

    def test_a_round_that_is_begun_again_forgets_what_was_kept_in_it(self) -> None:
        """A client that diverges in distilling sits the round out, and nobody remembers what it sent."""
        fed = lean("sign", on_divergence="skip", executor=toy.Diverging(11, "distill"))
        engine.run(create("fedmd"), fed, Schedule(rounds=1))
        assert [*fed.client_states.kept["upload"]] == [3, 7, 12, 20]


class TestSelectedSamples:
    """Three clients and four samples, of which each sends the two that it is sure of: 0 1, 1 2 and 0 1."""

    @pytest.fixture
    def logits(self) -> Tensor:
        z = torch.zeros(3, 4, 3)
        for n, places in enumerate([(0, 1), (1, 2), (0, 1)]):
            z[n, list(places), n] = torch.tensor([4.0, 3.0])
        return z

    @pytest.fixture
    def told(self, logits: Tensor) -> Federation:
        return toy.federation(3, public_batch_size=4, knowledge=Knowledge(select=0.5), executor=toy.Script(logits))

    def test_teachers_are_of_those_who_sent(self, told: Federation, logits: Tensor) -> None:
        upload = exchange.train_and_predict(told, told.initial_models(), [3, 7, 11], 1)
        s = torch.softmax(logits.double(), dim=2)
        assert torch.equal(upload.batch, told.public_batch(1)[:3])  # nobody sent the last one
        means = torch.stack([(s[0, 0] + s[2, 0]) / 2, (s[0, 1] + s[1, 1] + s[2, 1]) / 3, s[1, 2]])
        assert torch.allclose(upload.soft.mean(dim=0), means, rtol=0, atol=1e-15)
        assert torch.allclose(upload.soft[1, 0], means[0], rtol=0, atol=1e-15)  # client 7 did not send it
        assert torch.equal(upload.soft[0, :2], s[0, :2])
        assert upload.sizes == dict.fromkeys([3, 7, 11], 2 * 3 * 4 + 1)

    def test_a_sample_that_nobody_sent_is_not_taught(self, told: Federation) -> None:
        method = create("fedmd")
        _, report = method.round(method.init(told), [3, 7, 11], 1, told)
        taught: Any = told.executor
        assert all(teacher.shape == (3, 3) for teacher in taught.teachers.values())
        down = 3 * 3 * 4 + math.ceil(4 / 8)  # a bit a sample says which
        assert {traffic.predictions_down for traffic in report.traffic.values()} == {down}
