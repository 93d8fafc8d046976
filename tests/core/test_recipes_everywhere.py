"""Whole runs with every optimizer, schedule, augmentation and kept state: the same bits everywhere, and resumed."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.recipe import RateSchedule
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.methods import METHODS, create

AUGMENTED = ({"crop": {"padding": 2}}, {"flip": {}}, {"color_jitter": {"brightness": 0.5}}, {"rand_augment": {}})
RECIPES: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.001, "optimizer_state": "kept"},
    "adam": {"optimizer": "adam", "optimizer_state": "kept", "schedule": RateSchedule("step", every=2), "clip": 1.0},
}
RICHEST = {"optimizer": "adamw", "weight_decay": 0.01, "optimizer_state": "kept", "clip": 1.0}
RICHEST["schedule"] = RateSchedule("cosine", warm_up=1, floor=0.1)
CASES = {name: (recipe, "kt_pfl") for name, recipe in RECIPES.items()} | {
    name: (RICHEST, name) for name in ("fml", "fedproto", "feddf", "fedgh", "fedmrl")
}
SCHEDULE = Schedule(rounds=3, participation=0.6, evaluate_every=3)


def federation(recipe: dict[str, Any], augmentation: Any = AUGMENTED, **settings: Any) -> Federation:
    training = LocalTraining(1, 8, 0.02, label_smoothing=0.1, augmentation=augmentation, **recipe)
    distillation = Distillation(1, 8, 0.02, **recipe)
    return toy.federation(**{"rounds": 3, "training": training, "distillation": distillation, **settings})


def run(fed: Federation, method: str = "kt_pfl", file: Path | None = None, observer: Any = toy.SILENT) -> Run:
    made = create(
        method, {"common": "linear"} if method in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl") else {}
    )
    with closing(fed.executor):
        return engine.run(made, fed, SCHEDULE, settings={}, checkpoint_file=file, observer=observer)


def stopped(fed: Federation, file: Path, after: int, method: str = "kt_pfl") -> None:
    """Run up to the end of a round, and no further."""

    def stop(record: Any) -> None:
        if record.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fed, method, file, engine.Observer(round=stop))


def assert_same_run(one: Run, other: Run) -> None:
    assert [replace(r, seconds={}) for r in one.history] == [replace(r, seconds={}) for r in other.history]
    assert toy.same(one.state, other.state)


class TestBits:
    @pytest.mark.parametrize("case", CASES)
    def test_of_workers_and_of_a_resumed_run(self, case: str, tmp_path: Path) -> None:
        """Two rounds in workers and one in this process; methods that train in their own way have the richest.

        All changes of images are in KT-pFL's runs alone: colors take most of a run.
        """
        recipe, method = CASES[case]
        changes = AUGMENTED if method == "kt_pfl" else AUGMENTED[:2]
        whole = run(federation(recipe, changes), method)
        stopped(federation(recipe, changes, executor=ProcessesExecutor(2)), tmp_path / "c.pt", 2, method)
        assert_same_run(run(federation(recipe, changes), method, tmp_path / "c.pt"), whole)

    def test_kept_state_makes_a_difference_from_the_second_round_on(self) -> None:
        kept, reset = (run(federation(RECIPES["momentum"] | {"optimizer_state": s}, ())) for s in ("kept", "reset"))
        assert kept.history[0].loss == reset.history[0].loss
        assert kept.history[2].loss["train"] != reset.history[2].loss["train"]


class Once(SerialExecutor):
    """Breaks what client 7's training returns in round 2, weights or state; and counts its calls."""

    def outcomes(self, setting: Any, phase: str, operation: Any, calls: Any, progress: Any) -> dict[Any, Any]:
        found = super().outcomes(setting, phase, operation, calls, progress)
        if phase == "train" and 7 in calls and 2 in calls[7][1]:
            found[7] = replace(found[7], loss=torch.tensor(float("nan")))
        return found


class TestDivergence:
    ALL = Schedule(rounds=2)

    def left(self, on_divergence: Any, executor: SerialExecutor, rounds: int = 2) -> Federation:
        fed = federation(RECIPES["momentum"], (), on_divergence=on_divergence, executor=executor)
        engine.run(create("local"), fed, Schedule(rounds))
        return fed

    def test_a_restored_client_has_its_state_of_before(self) -> None:
        before = self.left("stop", SerialExecutor(), 1).client_states.kept["train"]
        after = self.left("restore", Once()).client_states.kept["train"]
        assert toy.same(after[7], before[7])
        assert not toy.same(after[3], before[3])

    def test_a_skipped_client_has_its_state_of_before_and_others_are_not_trained_twice(self) -> None:
        undisturbed = self.left("stop", SerialExecutor()).client_states.kept["train"]
        after = self.left("skip", Once()).client_states.kept["train"]
        before = self.left("stop", SerialExecutor(), 1).client_states.kept["train"]
        assert toy.same(after[7], before[7])
        assert toy.same({n: after[n] for n in (3, 11, 12, 20)}, {n: undisturbed[n] for n in (3, 11, 12, 20)})

    def test_a_state_that_is_not_finite_is_a_divergence(self) -> None:
        """With it Adam's steps are zero, so that the weights stay numbers."""
        fed = federation(RECIPES["adam"], ())
        models = fed.train({3: fed.initial_models()[3]}, 1)
        left = fed.client_states.before("train", 3)
        fed.client_states.kept = {"train": {3: {**left, "0.exp_avg_sq": left["0.exp_avg_sq"] + float("inf")}}}
        fed.client_states.start_attempt()
        with pytest.raises(DivergedError, match="3"):
            fed.train(models, 2)

    def test_who_is_not_in_the_cohort_keeps_its_state(self) -> None:
        fed = federation(RECIPES["momentum"], ())
        found: list[dict[int, Any]] = []
        seen = engine.Observer(round=lambda record: found.append(dict(fed.client_states.kept["train"])))
        history = engine.run(create("local"), fed, SCHEDULE, observer=seen).history
        for record, before, after in zip(history[1:], found, found[1:], strict=False):
            changed = {n for n in after if n not in before or after[n] is not before[n]}
            assert changed == set(record.cohort)

    def test_a_run_starts_with_none(self) -> None:
        fed = federation(RECIPES["momentum"], ())
        first = engine.run(create("local"), fed, self.ALL)
        assert_same_run(engine.run(create("local"), fed, self.ALL), first)


OWN = [name for name, preset in METHODS.items() if preset.kind.own_step]


class TestMethodsWithStepsOfTheirOwn:
    def test_are_known(self) -> None:
        assert set(OWN) == {
            *("per_fedavg", "per_fedavg_hf", "pfedme", "fedamp", "heur_fedamp", "ditto"),
            *("fedrep", "apple", "fedbabu", "apfl", "apfl_adaptive", "pfedgraph", "fedprox", "scaffold", "fedpac"),
        }

    def test_refuse_other_steps(self) -> None:
        for changes, named in ((RECIPES["momentum"], "momentum is 0.9"), ({"clip": 1.0}, "clip is 1.0")):
            for method in OWN:
                fed = toy.alike("both", training=LocalTraining(2, 8, 0.1, **changes))
                with pytest.raises(
                    InputError,
                    match=rf"^training\.{named}, which excludes .*: the method prescribes the optimizer step",
                ):
                    engine.run(create(method), fed, Schedule(1))
                    pytest.fail(f"{method} was not refused")

    @pytest.mark.parametrize("method", OWN)
    def test_take_schedule_smoothing_and_augmentation(self, method: str) -> None:
        """In one round, whose rate is half of that without a schedule."""

        def trained(**changes: Any) -> Any:
            fed = toy.alike("mlp", 2, training=LocalTraining(2, 8, 0.05, **changes), rounds=2)
            return engine.run(create(method), fed, Schedule(1)).state

        plain = trained()
        for changes in (
            {"schedule": RateSchedule("cosine", warm_up=1)},
            {"label_smoothing": 0.3},
            {"class_weights": "balanced"},
            {"augmentation": AUGMENTED[:2]},
        ):
            assert not toy.same(trained(**changes), plain)
