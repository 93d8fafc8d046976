"""The exchange of soft predictions: what goes up, what is mixed, what comes down, and how many bytes that is."""

import copy

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.exchange import Upload
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import PersonalState
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.setting import Distillation
from ktpfl_pipeline.core.weights import select

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
    def test_distils_each_clients_own_teacher(self, fed: Federation, state: PersonalState, upload: Upload) -> None:
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

    @pytest.mark.parametrize(("transport", "public"), [("float32", 13 * 256), ("uint8", 13 * 64), ("indices", 13 * 4)])
    def test_bytes_by_hand(self, state: PersonalState, transport: str, public: int) -> None:
        """13 public images of 64 pixels, three classes: 4 x 13 x 3 bytes up, and as many down."""
        fed = toy.federation(public_transport=transport)
        upload = exchange.train_and_predict(fed, state.models, COHORT, 2)
        _, report = exchange.teach(fed, state, upload, upload.soft, 2)
        expected = Traffic(predictions_up=156, predictions_down=156, public_down=public)
        assert report.traffic == dict.fromkeys(COHORT, expected)


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

    def test_alone_with_oneself_nothing_is_learned(self, state: PersonalState) -> None:
        """A teacher that is the student's own prediction has no gradient: float64, eval mode."""
        fed = toy.federation(dtype="float64")
        models = fed.initial_models()
        upload = exchange.train_and_predict(fed, models, COHORT, 1)
        after, _ = exchange.teach_mixtures(fed, PersonalState(models), upload, torch.eye(3).double(), 1)
        assert toy.distance(select(after.models, COHORT), upload.models) < 1e-14
