"""Clients that upload false predictions: who they are, what they upload, and that nothing else is theirs to change."""

from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.knowledge.channel import false_predictions
from ktpfl_pipeline.core.rng import drawn
from ktpfl_pipeline.core.settings import Adversaries
from ktpfl_pipeline.methods import METHODS, create
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.local import Local

LOGITS = torch.tensor([[1.0, 2.0, 4.0], [0.0, -1.0, 3.0]])


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lying(kind: str = "reversed", share: float = 0.4, **settings: Any) -> Federation:
    return toy.federation(adversaries=Adversaries(share, kind), **settings)  # type: ignore[arg-type]


class TestWho:
    def test_round_share_of_them(self) -> None:
        expected = {0.0: 0, 0.02: 0, 0.1: 2, 0.2: 4, 0.13: 3, 0.99: 20}
        assert {share: len(set(drawn("adversaries", share, range(20), 0))) for share in expected} == expected

    def test_are_drawn_by_seed_and_not_by_order(self) -> None:
        found = [drawn("adversaries", 0.2, range(20), seed) for seed in range(5)]
        assert len({tuple(ids) for ids in found}) == 5
        assert drawn("adversaries", 0.2, reversed(range(20)), 0) == found[0] == sorted(found[0])

    def test_a_larger_share_has_those_of_a_smaller_one(self) -> None:
        few, many = (set(drawn("adversaries", share, range(20), 3)) for share in (0.1, 0.3))
        assert few < many

    @pytest.mark.parametrize(("share", "clients"), [(0.95, 5), (0.99, 20), (0.6, 1)])
    def test_are_not_all(self, share: float, clients: int) -> None:
        message = f"^adversaries.share is {share:g}, which is {clients} of {plural(clients, 'client')}; take a share "
        with pytest.raises(InputError, match=message):
            Adversaries(share).check(clients)

    def test_one_benign_client_is_enough(self) -> None:
        Adversaries(0.8).check(5)
        Adversaries(0.5).check(1)  # round(0.5) is 0
        assert len(lying(share=0.8).adversary_ids) == 4
        with pytest.raises(InputError, match="at least one benign client"):
            lying(share=0.95)


class TestWhat:
    def test_reversed_is_the_classes_in_reverse_order(self) -> None:
        assert false_predictions("reversed", LOGITS, stream()).tolist() == [[4.0, 2.0, 1.0], [3.0, -1.0, 0.0]]

    def test_scaled_is_minus_ten_times(self) -> None:
        assert false_predictions("scaled", LOGITS, stream()).tolist() == [
            [-10.0, -20.0, -40.0],
            [0.0, 10.0, -30.0],
        ]

    def test_random_is_noise_as_large_as_the_logits(self) -> None:
        logits = 5 + 3 * torch.randn(400, 10, generator=stream(1))
        noise = false_predictions("random", logits, stream(2))
        assert float(noise.mean()) == pytest.approx(float(logits.mean()), abs=0.2)
        assert float(noise.std()) == pytest.approx(float(logits.std()), rel=0.05)
        assert abs(float(torch.corrcoef(torch.stack([noise.flatten(), logits.flatten()]))[0, 1])) < 0.05


class TestUploads:
    @pytest.mark.parametrize("kind", ["random", "reversed", "scaled"])
    def test_adversaries_lie_and_others_do_not(self, kind: str) -> None:
        benign, fed = toy.federation(), lying(kind)
        models, batch = fed.initial_models(), fed.public_batch(1)
        true, told = benign.logits(models, batch, 1), fed.logits(models, batch, 1)
        assert len(fed.adversary_ids) == 2
        for row, n in enumerate(toy.IDS):
            assert toy.same(true[row], told[row]) == (n not in fed.adversary_ids)

    def test_noise_is_anew_in_each_round_and_for_each_client(self) -> None:
        fed = lying("random")
        models, batch = fed.initial_models(), fed.public_batch(1)
        one, other = fed.logits(models, batch, 1), fed.logits(models, batch, 2)
        rows = fed.rows(fed.adversary_ids)
        assert not toy.same(one[rows], other[rows])
        assert not toy.same(one[rows[0]], one[rows[1]])
        alone = fed.logits({fed.adversary_ids[1]: models[fed.adversary_ids[1]]}, batch, 1)
        assert toy.same(alone[0], one[rows[1]])

    def test_who_uploads_nothing_is_as_without(self) -> None:
        plain, lied = (engine.run(Local(), fed, Schedule(rounds=2)) for fed in (toy.federation(), lying()))
        assert toy.same(lied.state, plain.state)

    def test_teachers_are_mixed_of_what_was_uploaded(self) -> None:
        predictions = torch.randn(5, 7, 3, generator=stream(3))
        told = toy.teachers(FedMD(), predictions, adversaries=Adversaries(0.4, "reversed"))
        adversaries = toy.federation(adversaries=Adversaries(0.4)).adversary_ids
        false = torch.stack(
            [row.flip(-1) if n in adversaries else row for n, row in zip(toy.IDS, predictions, strict=True)]
        )
        assert toy.same(told, toy.teachers(FedMD(), false))

    @pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].kind.exchanges == {"predictions"}])
    def test_every_method_on_predictions_meets_them(self, name: str) -> None:
        schedule = Schedule(rounds=1)
        feds = (toy.federation(3), lying("scaled", clients=3))
        plain, lied = (engine.run(create(name), fed, schedule) for fed in feds)
        assert not toy.same(lied.state, plain.state)
        assert lied.history[0].accuracy["after_local"] == plain.history[0].accuracy["after_local"]
