"""SCARLET: what is asked for and sent, what a label is, and one round by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import Knowledge
from ktpfl_pipeline.core.weights import select
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.scarlet import SCARLET, sharpened

EVERYONE = list(toy.IDS)
WHOLE = 4 * 13 * 3  # bytes of a batch's predictions


def fixed(**settings: Any) -> Federation:
    """A federation whose public batch is all of the public set, so that the same samples come again."""
    return toy.federation(public_batch_size=24, **settings)


def traffic(run: engine.Run) -> list[tuple[int, int]]:
    return [(record.traffic["knowledge_up"][0], record.traffic["knowledge_down"][0]) for record in run.history]


class TestEnhancedERA:
    def test_by_hand(self) -> None:
        """Squares of 0.6, 0.3, 0.1: 36, 9 and 1 of 46."""
        mean = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
        assert sharpened(mean, 2.0)[0].tolist() == pytest.approx([36 / 46, 9 / 46, 1 / 46], abs=1e-15)
        assert torch.allclose(sharpened(mean, 1.0), mean, rtol=0, atol=1e-15)

    def test_of_an_exponent_that_underflows(self) -> None:
        mean = torch.tensor([[0.4, 0.3, 0.3], [0.0, 0.5, 0.5]], dtype=torch.float64)
        assert sharpened(mean, 1e4).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]


class TestCache:
    def test_a_client_is_asked_again_when_its_labels_have_expired(self) -> None:
        run = engine.run(SCARLET(duration=2), fixed(), Schedule(rounds=5))
        everything, request = 4 * 24 * 3, 3
        assert traffic(run) == [
            (everything, everything + request),
            (0, request),
            (0, request),
            (everything, everything + request),
            (0, request),
        ]
        assert set(run.state.made.tolist()) == {4}

    def test_an_absent_client_is_later_sent_the_labels_it_lacks(self) -> None:
        """And nobody uploads anything for it."""
        fed, method = fixed(), SCARLET(duration=9)
        state, report = method.round(method.init(fed), [3, 7], 1, fed)
        fed.client_states.end_round()
        _, again = method.round(state, [7, 20], 2, fed)
        assert (report.metrics, again.metrics) == ({"requested_share": 1.0}, {"requested_share": 0.0})
        found = {n: (own.knowledge_up, own.knowledge_down) for n, own in again.traffic.items()}
        assert found == {7: (0, 3), 20: (0, 4 * 24 * 3 + 3 + 3)}  # which samples are asked for; which are sent to it

    def test_an_expired_label_that_no_client_renews_is_not_taught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fed, method, usual = fixed(knowledge=Knowledge(select=0.2)), SCARLET(duration=1), exchange.teach
        state, ages = method.init(fed), set[int]()

        def teach(*given: Any, since: torch.Tensor) -> Any:
            ages.update((t - since).tolist())
            return usual(*given, since=since)

        monkeypatch.setattr(exchange, "teach", teach)
        for t in range(1, 6):
            state, _ = method.round(state, [3, 7], t, fed)
            fed.client_states.end_round()
        assert ages == {0, 1}

    def test_clients_learn_from_cached_labels(self) -> None:
        fed, method = fixed(), SCARLET(duration=9)
        state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        fed.client_states.end_round()
        after, _ = method.round(state, EVERYONE, 2, fed)
        assert torch.equal(after.labels, state.labels)
        batch = fed.public_batch(2)
        expected = fed.distill(fed.train(state.models, 2), state.labels[batch].expand(5, -1, -1), batch, 2)
        assert toy.same(after.models, expected)

    def test_without_one_and_without_sharpening_it_is_fedmd(self) -> None:
        """Up to rounding: a mean is taken in another order, and a power of 1."""
        fed = toy.federation(dtype="float64")
        run = engine.run(SCARLET(duration=0, beta=1.0), fed, Schedule(rounds=3))
        plain = engine.run(FedMD(), toy.federation(dtype="float64"), Schedule(rounds=3))
        assert toy.distance(run.state.models, plain.state.models) < 1e-12
        assert [up for up, _ in traffic(run)] == [WHOLE] * 3

    def test_labels_travel_encoded(self) -> None:
        fed, method = fixed(knowledge=Knowledge("uint8")), SCARLET(duration=9)
        state, report = method.round(method.init(fed), EVERYONE, 1, fed)
        assert {own.predictions_up for own in report.traffic.values()} == {24 * 3 + 8}
        assert {own.predictions_down for own in report.traffic.values()} == {24 * 3 + 8 + 3}
        fed.client_states.end_round()
        _, report = method.round(state, EVERYONE, 2, fed)
        assert {own.knowledge_up + own.knowledge_down for own in report.traffic.values()} == {3}

    def test_a_resumed_run_keeps_the_labels_of_the_clients(self, tmp_path: Any) -> None:
        schedule, file = Schedule(rounds=4, participation=0.6), tmp_path / "run.ckpt"
        straight = engine.run(SCARLET(), fixed(), schedule)
        engine.run(SCARLET(), fixed(), replace(schedule, rounds=2), checkpoint_file=file)
        resumed = engine.run(SCARLET(), fixed(), schedule, checkpoint_file=file)
        assert toy.same(resumed.state, straight.state)
        assert traffic(resumed) == traffic(straight)


@pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11]], ids=["all", "three"])
def test_two_rounds_by_hand(cohort: list[int]) -> None:
    """Samples of round 1 keep their label in round 2, the others are asked for; float64."""
    fed, method = toy.federation(dtype="float64"), SCARLET(duration=1, beta=2.5)
    state = method.init(fed)
    models, labels = state.models, {}
    for t in (1, 2):
        state, _ = method.round(state, cohort, t, fed)
        fed.client_states.end_round()
        batch = fed.public_batch(t)
        trained = fed.train(select(models, cohort), t)
        asked = [x for x in batch.tolist() if x not in labels]
        assert 0 < len(asked) <= 13
        for x, z in zip(asked, fed.logits(trained, torch.tensor(asked)).transpose(0, 1), strict=True):
            odds = (sum(row.exp() / row.exp().sum() for row in z) / len(cohort)) ** 2.5
            labels[x] = odds / odds.sum()
        teacher = torch.stack([labels[x] for x in batch.tolist()])
        models = {**models, **fed.distill(trained, teacher.expand(len(cohort), -1, -1), batch, t)}
    assert toy.distance(state.models, models) < 1e-12


def test_newcomers_get_the_same_teacher_as_clients_in_a_round() -> None:
    """The mean of predictions to the power β; with 1, as by FedMD, the mean itself."""
    fed, logits = toy.federation(), torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    mean = logits.double().softmax(dim=-1).mean(dim=0)
    found = SCARLET(beta=2.0).consensus(logits, fed)
    assert torch.allclose(found, mean**2 / (mean**2).sum(dim=-1, keepdim=True), rtol=0, atol=1e-12)
    assert torch.allclose(SCARLET(beta=1.0).consensus(logits, fed), FedMD().consensus(logits, fed), rtol=0, atol=1e-12)
