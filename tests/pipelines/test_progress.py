"""How far a run is: what the log says; the bar needs a terminal."""

import logging

import pytest
from experiment import EXPERIMENT as SECTION

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.pipelines.federated_training.progress import Progress

EXPERIMENT = parsing.parse("mine", {**SECTION, "seeds": [0, 1], "rounds": 2})


def record(t: int = 1, seconds: float = 1.0) -> RoundRecord:
    accuracy = {"after_transfer": [0.25, 0.75]}
    return RoundRecord(round=t, cohort=[0, 1], accuracy=accuracy, seconds={"round": seconds})


def logged(caplog: pytest.LogCaptureFixture, seconds: float, trained: bool = True) -> list[str]:
    """Return what is logged of a run of two rounds with two seeds, each round taking so long."""
    with caplog.at_level(logging.INFO, "ktpfl_pipeline"), Progress("kt_pfl", EXPERIMENT) as progress:
        caplog.clear()
        for seed in (0, 1):
            with progress.run(seed) as shown:
                for t in (1, 2):
                    if trained:
                        shown.phase("train", 1, 5)
                    shown.round(record(t, seconds))
    return [message for message in caplog.messages if "starting" not in message.lower()]


def test_one_line_per_run(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, seconds=1.0)
    assert [line.rpartition(" in ")[0] for line in lines] == [
        "KT-pFL, seed 0: accuracy 50.0 %",
        "KT-pFL, seed 1: accuracy 50.0 %",
    ]


def test_more_than_an_hour_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    """Four rounds of half an hour."""
    long = [line for line in logged(caplog, seconds=1800.0) if "hours" in line]
    assert long == [
        "KT-pFL will take about 2.0 hours at 1800 s a round; stop and add --env=quick for a run of minutes."
    ]


def test_less_than_an_hour_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert not [line for line in logged(caplog, seconds=890.0) if "hours" in line]


def test_a_resumed_run_announces_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Round 1 comes from the checkpoint, round 2 is trained: three rounds of half an hour, of four."""
    caplog.set_level(logging.INFO, "ktpfl_pipeline")
    with Progress("kt_pfl", EXPERIMENT) as progress, progress.run(0) as shown:
        shown.round(record(1, 1800.0))
        assert not [message for message in caplog.messages if "hours" in message]
        shown.phase("train", 1, 5)
        shown.round(record(2, 1800.0))
    assert [message for message in caplog.messages if "hours" in message] == [
        "KT-pFL will take about 1.5 hours at 1800 s a round; stop and add --env=quick for a run of minutes."
    ]


def test_what_was_finished_before_takes_no_time(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, seconds=1800.0, trained=False)
    assert lines == [f"KT-pFL, seed {seed}: accuracy 50.0 % (finished before)" for seed in (0, 1)]
