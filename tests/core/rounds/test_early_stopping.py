"""Early stopping by validation: when a run ends, which round counts, and that nothing else decides it."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.metrics import VALIDATION, RoundRecord
from ktpfl_pipeline.core.rounds import early_stopping
from ktpfl_pipeline.methods import create

METHODS = ("kt_pfl", "feddf", "local")
ROUNDS = engine.Schedule(rounds=8, patience=2)


def history(*means: float | None) -> list[RoundRecord]:
    """Return rounds in which two clients are 10 points around a mean validation accuracy; None: not evaluated."""
    return [
        RoundRecord(t, [0, 1], {} if mean is None else {VALIDATION: [mean - 0.1, mean + 0.1]})
        for t, mean in enumerate(means, start=1)
    ]


@pytest.mark.parametrize(
    ("means", "expected", "ended"),
    [
        ((0.5, 0.6, 0.55, 0.6), 2, True),  # an equal one is no better
        ((0.5, 0.6, 0.55), 2, False),
        ((0.5, 0.6, None, 0.55, None), 2, False),  # two rounds later, and one evaluation
        ((0.5, 0.4, 0.6), 3, False),
        ((0.6, 0.5, 0.5, 0.5), 1, True),
    ],
)
def test_by_hand(means: Sequence[float | None], expected: int, ended: bool) -> None:
    """With a patience of two evaluations."""
    found = early_stopping.best(history(*means), ())
    assert found is not None
    assert found.round == expected
    assert early_stopping.ends(history(*means), 2, ()) is ended
    assert not early_stopping.ends(history(*means), None, ())


def test_adversaries_do_not_count() -> None:
    one, other = history(0.5, 0.5)
    other = replace(other, accuracy={VALIDATION: [0.1, 0.7]})
    assert early_stopping.best([one, other], ()) is one
    assert early_stopping.best([one, other], [0]) is other


def test_a_round_with_an_unknown_client_is_not_the_best() -> None:
    """A real client has NaN until it answers an evaluation."""
    unknown, *known = history(0.9, 0.5, 0.6)
    unknown = replace(unknown, accuracy={VALIDATION: [0.9, math.nan]})
    assert early_stopping.best([unknown, *known], ()) is known[1]
    assert early_stopping.best([unknown], ()) is unknown
    assert not early_stopping.ends([unknown, *known], 2, ())


def federation(method: str, **settings: Any) -> Any:
    return toy.federation_for(create(method), **settings)


def run(method: str, schedule: engine.Schedule = ROUNDS, fed: Any = None, **more: Any) -> engine.Run:
    return engine.run(create(method), fed or federation(method), schedule, **more)


def models(method: str, done: engine.Run) -> Any:
    fed = federation(method)
    return create(method).personal(done.state, fed.by_id, fed)


@pytest.fixture(scope="module", params=METHODS)
def method(request: Any) -> str:
    return str(request.param)


@cache
def ended(method: str) -> engine.Run:
    return run(method)


@pytest.fixture
def stopped(method: str) -> engine.Run:
    return ended(method)


def test_a_run_is_that_of_all_rounds_until_it_ends(method: str, stopped: engine.Run) -> None:
    whole = run(method, engine.Schedule(rounds=8))
    rounds = len(stopped.history)
    found = early_stopping.best(stopped.history, ())
    assert found is not None
    assert [record.accuracy for record in stopped.history] == [r.accuracy for r in whole.history[:rounds]]
    assert rounds == 8 or rounds == found.round + 2
    assert stopped.rounds == found.round
    until = run(method, engine.Schedule(rounds=found.round), replace(federation(method), rounds=8))
    assert toy.same(models(method, stopped), models(method, until)), "models are those of the best round"
    if stopped.coefficients is not None:
        assert len(stopped.coefficients) == found.round


def test_some_run_ends_early() -> None:
    assert any(len(ended(method).history) < 8 for method in METHODS)


def test_workers_and_a_resumed_run_end_there_too(method: str, stopped: engine.Run, tmp_path: Path) -> None:
    """Workers continue the run that was stopped in its first round."""
    others = []
    for last in (1, len(stopped.history)):  # the latter is the round at which it ended
        file = tmp_path / f"{last}.pt"

        def stop(record: RoundRecord, last: int = last) -> None:
            if record.round == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(method, checkpoint_file=file, observer=engine.Observer(round=stop))
        with closing(ProcessesExecutor(2) if last == 1 else SerialExecutor()) as executor:
            others.append(run(method, fed=federation(method, executor=executor), checkpoint_file=file))
    for other in others:
        assert [record.accuracy for record in other.history] == [record.accuracy for record in stopped.history]
        assert toy.same(models(method, other), models(method, stopped))


def test_every_evaluation_has_what_the_best_one_needs() -> None:
    schedule = replace(ROUNDS, adapt_epochs=(1,), global_samples=5)
    for record in run("local", schedule).history:
        assert "adapted_1" in record.accuracy
        assert "global_accuracy" in record.measures


def test_without_validation_samples_it_is_refused() -> None:
    fed = federation("local")
    nothing = fed.clients[0].validation.take(fed.clients[0].validation.labels[:0])
    fed = toy.again(fed, clients=(replace(fed.clients[0], validation=nothing), *fed.clients[1:]))
    with pytest.raises(InputError, match=r"^evaluation\.patience is set, and client 3 has no validation samples"):
        run("local", fed=fed)
