"""Warnings are logged once, collected, and kept by runs and their checkpoints."""

from pathlib import Path

import pytest
import toy

from ktpfl_pipeline.core import engine, warnings
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.warnings import Warned, collected, recall, warn
from ktpfl_pipeline.methods.local import Local

FOUND = Warned("Absent classes", "no sample has class 3: list the others")


def test_a_warning_is_logged_once_and_reaches_every_surrounding_collection(caplog: pytest.LogCaptureFixture) -> None:
    with collected() as outer:
        warn(FOUND.kind, FOUND.text)
        with collected() as inner:
            warn(FOUND.kind, FOUND.text)
            warn("Public samples", "two\nlines")
    assert list(outer) == [FOUND, Warned("Public samples", "two\\nlines")] == list(inner)
    assert caplog.messages == [FOUND.text, "two\\nlines"]
    warn(FOUND.kind, FOUND.text)
    assert len(outer) == 2, "after its context, a collection stays as it is"


def test_a_command_logs_no_warning_twice(caplog: pytest.LogCaptureFixture) -> None:
    token = warnings._open.set(())
    try:
        for logged in (1, 2):
            warnings.start_command()
            for _ in range(2):
                with collected() as found:
                    warn(FOUND.kind, FOUND.text)
                assert list(found) == [FOUND]
            assert len(caplog.messages) == logged
    finally:
        warnings._open.reset(token)


def test_an_unlisted_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'Weather' is not a kind of warning"):
        warn("Weather", "it rains")


def test_a_run_keeps_the_warnings_of_its_federation_and_of_its_earlier_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first part of the run warns in a round. The second part, which only continues it, has the warning too."""
    fed, file = toy.federation(warnings=(FOUND,)), tmp_path / "run.ckpt"
    original = Local.round

    def warns(self, *arguments):
        warn("Participation", "a round warns")
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Local, "round", warns)
        assert [each.text for each in engine.run(Local(), fed, Schedule(1), checkpoint_file=file).warnings] == [
            FOUND.text,
            "a round warns",
        ]
    logged = len(caplog.messages)
    with collected() as outside:
        resumed = engine.run(Local(), fed, Schedule(2), checkpoint_file=file)
    assert resumed.warnings == (FOUND, Warned("Participation", "a round warns")) == tuple(outside)
    assert len(caplog.messages) == logged
    recall(resumed.warnings)  # without a collection, nothing happens
