"""What a method of one's own may return: all else is refused in a sentence, before anything is kept."""

import collections
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import PersonalState
from ktpfl_pipeline.core.rounds import contract
from ktpfl_pipeline.core.weights import Handle
from ktpfl_pipeline.methods.local import Local


class Plain:
    """An object of some class."""


class Pair(tuple[Any, ...]):
    """As a named tuple is."""


class Elsewhere(Handle):
    """A model that must not come here."""

    def __init__(self) -> None:
        self.shapes = {"w": torch.empty(3, device="meta")}

    def open(self) -> dict[str, torch.Tensor]:
        raise AssertionError("it was opened")


@dataclass(frozen=True, eq=False)
class Beside(PersonalState):
    blob: Any = None


@dataclass(frozen=True)
class Keeping(Local):
    """Keeps something beside the models.

    Attributes:
        first: makes what it begins with.
        later: makes what each round leaves.
    """

    title = "Keeping"
    first: Callable[[], Any] = field(default=lambda: None)
    later: Callable[[], Any] = field(default=lambda: None)

    def init(self, fed: Federation) -> Beside:
        return Beside(fed.initial_models(), self.first())

    def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> Any:
        after, report = super().round(state, cohort, t, fed)
        return Beside(after.models, self.later()), report


UNREADABLE = {
    "numpy.ndarray": lambda: np.zeros(3),
    "numpy.float64": lambda: {"loss": [np.float64(0.5)]},
    "numpy.int64": lambda: {np.int64(3): 1},
    f"{__name__}.Plain": Plain,
    f"{__name__}.Pair": lambda: (1, Pair([2])),
    "range": lambda: range(3),
    "torch.nn.modules.linear.Linear": lambda: [nn.Linear(1, 1)],
}


def refused(method: Any, file: Path | None = None, rounds: int = 2) -> str:
    with pytest.raises(InputError) as error:
        engine.run(method, toy.federation(2), engine.Schedule(rounds), checkpoint_file=file)
    return str(error.value)


class TestStates:
    @pytest.mark.parametrize("kept", [True, False], ids=["kept", "in memory"])
    @pytest.mark.parametrize("when", ["first", "later"])
    @pytest.mark.parametrize("kind", UNREADABLE)
    def test_what_no_checkpoint_is_read_back_with_is_refused(
        self, kind: str, when: str, kept: bool, tmp_path: Path
    ) -> None:
        file = tmp_path / "run.ckpt" if kept else None
        said = refused(Keeping(**{when: UNREADABLE[kind]}), file)
        assert said.startswith(f"The state of {__name__}:Keeping has a {kind} in `blob`; a state holds tensors")
        assert not list(tmp_path.iterdir())

    def test_before_any_training(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Keeping, "round", lambda *_: pytest.fail("a round began"))
        assert "numpy.ndarray in `blob`" in refused(Keeping(first=UNREADABLE["numpy.ndarray"]))

    def test_all_that_is_read_back_is_kept(self, tmp_path: Path) -> None:
        blob = {
            "tensors": [torch.zeros(2), nn.Parameter(torch.ones(1)), torch.zeros((), dtype=torch.int64)],
            "numbers": (1, 0.5, True, None, 1j, 10**40),
            3: {"text", b"bytes"},
            "torch": [torch.float32, torch.device("cpu"), torch.Size([2])],
            "dicts": collections.OrderedDict(a=collections.Counter("aab")),
        }
        method, file = Keeping(first=lambda: blob, later=lambda: blob), tmp_path / "run.ckpt"
        one = engine.run(method, toy.federation(2), engine.Schedule(1), checkpoint_file=file)
        again = engine.run(method, toy.federation(2), engine.Schedule(1), checkpoint_file=file)
        assert toy.same(one.state.models, again.state.models)
        assert toy.same(one.state.blob["tensors"], again.state.blob["tensors"])
        rest = [{key: value for key, value in each.state.blob.items() if key != "tensors"} for each in (one, again)]
        assert rest[0] == rest[1]

    def test_a_model_that_lives_elsewhere_stays_there(self) -> None:
        state = Beside({3: Elsewhere()}, [Elsewhere()])
        contract.check_state(Keeping(), state)
        assert isinstance(state.models[3], Elsewhere)

    def test_in_the_first_round_that_somebody_shows_up_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        turnout = engine.turnout
        monkeypatch.setattr(engine, "turnout", lambda *given: ([], given[1], []) if given[2] == 1 else turnout(*given))
        assert "numpy.ndarray in `blob`" in refused(Keeping(later=UNREADABLE["numpy.ndarray"]), rounds=2)

    @pytest.mark.parametrize(("state", "called"), [(None, "None"), ({}, "a dict"), (Beside, "a type")])
    def test_what_is_no_state(self, state: Any, called: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Keeping, "init", lambda self, fed: state)
        assert refused(Keeping()).startswith(f"init of {__name__}:Keeping returned {called}; it must return the")


class TestRounds:
    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            (lambda state, report: None, "returned None; it must return a pair, (Beside, RoundReport)."),
            (lambda state, report: state, f"returned a {__name__}.Beside; it must return a pair"),
            (lambda state, report: (state, report, 1), "returned a tuple; it must return a pair"),
            (
                lambda state, report: (report, state),
                "returned a pair of a ktpfl_pipeline.core.method.RoundReport and a",
            ),
            (lambda state, report: (state, None), f"returned a pair of a {__name__}.Beside and None; it must return"),
            (lambda state, report: (PersonalState({}), report), "the state that follows, a Beside as before, and a"),
            (lambda state, report: (state, type(report)({}, report.traffic)), "reported no after_local of client 3;"),
            (lambda state, report: (state, type(report)(report.after_local, {})), "reported no traffic of client 3;"),
            (
                lambda state, report: (state, replace(report, metrics={"spread": [0.1]})),
                "reported a list as the metric 'spread'; a metric is one number.",
            ),
        ],
    )
    def test_what_is_no_round(
        self, changed: Callable[..., Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        own = Keeping.round
        monkeypatch.setattr(Keeping, "round", lambda *given: changed(*own(*given)))
        message = refused(Keeping(), tmp_path / "run.ckpt")
        assert message.startswith(f"round of {__name__}:Keeping ")
        assert said in message
        assert not list(tmp_path.iterdir())
