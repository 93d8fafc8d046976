"""Recipes: learning rates of the rounds against torch's own schedules, and what does not go together."""

import re
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from ktpfl_pipeline.core.recipe import RateSchedule, Recipe
from ktpfl_pipeline.core.settings import Distillation, LocalTraining

ROUNDS = 12


def by_torch(schedule: RateSchedule) -> list[float]:
    """Return the rates of a run's rounds as torch's schedulers give them, for a learning rate of 1."""
    optimizer = torch.optim.SGD([torch.zeros(1)], 1.0)
    after: dict[str, Any] = {
        "constant": lambda: lr_scheduler.ConstantLR(optimizer, 1.0),
        "step": lambda: lr_scheduler.StepLR(optimizer, schedule.every, schedule.factor),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS - schedule.warm_up, schedule.floor),
    }
    then = after[schedule.kind]()
    if w := schedule.warm_up:
        first = lr_scheduler.LinearLR(optimizer, 1 / (w + 1), 1.0, total_iters=w)
        then = lr_scheduler.SequentialLR(optimizer, [first, then], [w])
    rates = []
    for _ in range(ROUNDS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        then.step()
    return rates


class TestRates:
    @pytest.mark.parametrize(
        "settings",
        [{"kind": "constant"}, {"kind": "step", "every": 4}, {"kind": "cosine"}, {"kind": "cosine", "floor": 0.2}],
        ids=str,
    )
    def test_are_torchs(self, settings: dict[str, Any]) -> None:
        for warm_up in (0, 1, 3):
            schedule = RateSchedule(**settings, warm_up=warm_up)
            found = [Recipe(1, 1, 1.0, schedule=schedule).rate(t, ROUNDS) for t in range(1, ROUNDS + 1)]
            assert found == pytest.approx(by_torch(schedule), abs=1e-12), warm_up

    def test_by_hand(self) -> None:
        cosine = RateSchedule("cosine", warm_up=1)
        assert [Recipe(1, 1, 0.4, schedule=cosine).rate(t, 3) for t in (1, 2, 3)] == pytest.approx([0.2, 0.4, 0.2])
        step = RateSchedule("step", every=2, factor=0.5)
        assert [Recipe(1, 1, 0.4, schedule=step).rate(t, 5) for t in range(1, 6)] == [0.4, 0.4, 0.2, 0.2, 0.1]

    def test_round_0_has_the_whole_rate(self) -> None:
        kinds: tuple[Any, ...] = ("constant", "step", "cosine")
        assert [Recipe(1, 1, 0.4, schedule=RateSchedule(kind, warm_up=5)).rate(0, 30) for kind in kinds] == [0.4] * 3

    def test_of_a_run_shorter_than_its_warm_up_grow(self) -> None:
        rates = [RateSchedule("cosine", warm_up=5).at(t, 3) for t in (1, 2, 3)]
        assert rates == [1 / 6, 2 / 6, 3 / 6]


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({}, True),
        ({"schedule": RateSchedule("cosine"), "label_smoothing": 0.1, "augmentation": ({"flip": {}},)}, True),
        ({"momentum": 0.9}, False),
        ({"weight_decay": 1e-4}, False),
        ({"clip": 1.0}, False),
        ({"optimizer": "adamw"}, False),
    ],
)
def test_a_plain_step_is_known(settings: dict[str, Any], plain: bool) -> None:
    assert LocalTraining(**settings).plain is plain


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adam", "momentum": 0.9}, r"^momentum is 0\.9, which belongs to sgd"),
        ({"optimizer": "adamw", "nesterov": True}, "^nesterov is True, which belongs to sgd"),
        ({"nesterov": True}, "^nesterov is true but momentum is 0"),
        ({"optimizer_state": "kept"}, "^optimizer_state is kept, but sgd without momentum has no state"),
        ({"optimizer_state": "kept", "weight_decay": 0.1}, "^optimizer_state is kept, but sgd without momentum"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    for kind in (LocalTraining, Distillation):
        assert re.match(message, next(kind(**settings).conflicts()))


@pytest.mark.parametrize(
    ("kind", "settings"), [("constant", {"floor": 0.1}), ("step", {"floor": 0.1}), ("cosine", {"every": 3})]
)
def test_a_schedule_takes_nothing_of_another_kind(kind: Any, settings: dict[str, Any]) -> None:
    assert re.match(
        rf"schedule\.{next(iter(settings))} belongs to the kind", next(RateSchedule(kind, **settings).conflicts())
    )
