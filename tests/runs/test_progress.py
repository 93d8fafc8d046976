"""How far a run is: what the log says; the bar needs a terminal."""

import io
import logging

import pytest
from experiment import EXPERIMENT as SECTION
from rich.console import Console

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.runs import progress as module
from ktpfl_pipeline.runs.progress import Progress, expect

EXPERIMENT = parsing.parse("mine", {**SECTION, "seeds": [0, 1], "rounds": 2})


@pytest.fixture(autouse=True)
def nothing_announced() -> None:
    """Forget what a test of this process has announced and did not come to."""
    module._plan.set(None)


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
    assert [line.partition(" in ")[0] for line in lines] == [
        "1/2  KT-pFL, seed 0: accuracy 50.0 %",
        "2/2  KT-pFL, seed 1: accuracy 50.0 %",
    ]


def test_runs_that_choose_show_validation_accuracy(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("kt_pfl", EXPERIMENT, "validation")
    with caplog.at_level(logging.INFO, "ktpfl_pipeline"), progress, progress.run(0) as shown:
        shown.phase("train", 1, 5)
        found = record()
        found.accuracy["validation"] = [0.5, 0.7]
        shown.round(found)
    assert "seed 0: validation accuracy 60.0 %" in caplog.messages[-1]
    assert "50.0" not in caplog.text


def test_more_than_an_hour_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    """Four rounds of half an hour."""
    long = [line for line in logged(caplog, seconds=1800.0) if "hours" in line]
    assert long == ["This will take about 2.0 hours at 1800 s a round; stop and add --env=quick for a run of minutes."]


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
        "This will take about 1.5 hours at 1800 s a round; stop and add --env=quick for a run of minutes."
    ]


def test_what_was_finished_before_takes_no_time(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, seconds=1800.0, trained=False)
    assert lines == [f"{seed + 1}/2  KT-pFL, seed {seed}: accuracy 50.0 % (finished before)" for seed in (0, 1)]


def test_all_methods_count_and_say_how_long_they_take(caplog: pytest.LogCaptureFixture) -> None:
    """Three methods with two seeds; a run has two rounds of 30 s, so five runs are left after the first."""
    expect(3)
    assert [line.partition("  ")[0] for line in logged(caplog, 30.0) + logged(caplog, 30.0)] == [
        "1/6",
        "2/6",
        "3/6",
        "4/6",
    ]
    first, last = logged(caplog, 30.0)
    assert first.endswith(", about 1.0 min left")
    assert "left" not in last
    assert logged(caplog, 30.0)[0].startswith("1/2  "), "what nobody announced is counted anew"


def test_a_run_that_fails_is_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The paper and comparisons go on after it, without the method's other seeds."""
    expect(2)
    with Progress("kt_pfl", EXPERIMENT) as progress, pytest.raises(RuntimeError), progress.run(3) as shown:
        shown.round(record())
        raise RuntimeError
    assert caplog.messages == ["KT-pFL, seed 3: failed after 1 of 2 rounds"]
    assert [line.partition("  ")[0] for line in logged(caplog, 1.0)] == ["3/4", "4/4"]


def test_starting_anew_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ktpfl_pipeline")
    expect(2)
    for _ in range(2):
        Progress("kt_pfl", EXPERIMENT).plan.say_anew()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("width", [80, 200])
def test_the_display_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """While Theorem 1 is checked, after the last round, no further round is counted."""
    monkeypatch.setenv("COLUMNS", str(width))
    expect(13)
    progress = Progress("kt_pfl_likelihood", EXPERIMENT)
    console = Console(width=width, record=True, file=io.StringIO())
    with progress.run(0) as shown:
        for seen in ("round 1/2  distill 3/20", "looking at the final models"):
            shown.phase("distill", 3, 20)
            console.print(progress.get_renderable())
            lines = console.export_text().splitlines()
            assert len(lines) == 2
            assert max(map(len, lines)) <= width
            assert "0 of 26" in lines[0]
            assert lines[1].startswith("KT-pFL (likelihood), seed 0")
            assert seen in lines[1]
            for t in (1, 2):
                shown.round(record(t))


def test_methods_that_were_announced_and_will_not_run_are_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    """A search that tries fewer candidates than it might."""
    expect(3)
    module.fewer(2)
    assert logged(caplog, seconds=1.0)[0].startswith("1/2  KT-pFL")
