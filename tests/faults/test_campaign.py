"""The short form of the campaign: a few faults, in runs without the report. The long form is campaign.py."""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import faults
import forked_runs
import pytest
from campaign import campaign, tell
from faults import LOST, Fault, Outcome
from page import DOCUMENT, KINDS, VERDICTS, document
from stage import FINISHED, FRESH, Stage

SEED = 7
SHORT = tuple(kind for kind in KINDS if kind not in (faults.WORKER, faults.MEMORY))
"""Kinds of the short form; `test_processes.py` and `test_used_up.py` have the other two."""
WHOLE = (faults.KILLED, faults.FULL)
UNTIL = ("--to-outputs=hetero_digits/kt_pfl/result",)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Stage]:
    forked_runs.prepare()
    made = Stage.build(tmp_path_factory.mktemp("faults").resolve() / "stage", empty_store, UNTIL)
    yield made
    made.close()


def test_nothing_is_lost(stage: Stage) -> None:
    """One of each kind: the first that strikes; in a run that goes on, which is shorter, except for `WHOLE`."""
    drawn = sorted(faults.draw(stage, 60, SEED), key=lambda fault: fault.kind not in WHOLE and fault.start == FRESH)
    by_kind = {kind: [fault for fault in drawn if fault.kind == kind] for kind in SHORT}
    outcomes = [outcome for listed in by_kind.values() for outcome in campaign(stage, listed, 1, tell)]
    assert tuple(outcome.fault.kind for outcome in outcomes) == SHORT
    assert not [f"{outcome.fault}: {outcome.why}" for outcome in outcomes if outcome.verdict == LOST]
    assert Counter(outcome.verdict for outcome in outcomes).keys() == set(VERDICTS) - {LOST}


def test_the_same_seed_is_the_same_faults(stage: Stage) -> None:
    assert faults.draw(stage, 50, 1) == faults.draw(stage, 50, 1)
    assert faults.draw(stage, 50, 1) != faults.draw(stage, 50, 2)


def in_store(statement: str) -> Callable[[Path], None]:
    def tamper(folder: Path) -> None:
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as store:
            assert store.execute(statement).rowcount > 0
            store.commit()

    return tamper


def change(pattern: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def tamper(folder: Path) -> None:
        (file,) = folder.glob(pattern)
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return tamper


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a point logged twice": (
        in_store(
            "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) "
            "select key, value, timestamp + 1, run_uuid, step, is_nan from metrics where key = 'round' and step = 2"
        ),
        "the tracked runs",
    ),
    "a point that is missing": (in_store("delete from metrics where key = 'round' and step = 2"), "the tracked runs"),
    "a run left running": (in_store("update runs set status = 'RUNNING'"), "the tracked runs"),
    "a second run": (
        in_store("insert into runs (run_uuid, name, status, lifecycle_stage) values ('x', 'y', 'FINISHED', 'active')"),
        "2 MLflow runs",
    ),
    "another number in the result": (change("data/07*/*/*/result.json", b'"round": 2,', b'"round": 4,'), "the result"),
    "another partition": (change("data/03*/*/partition.csv", b"0,0,train", b"0,1,train"), "the partition"),
    "a figure cut short": (change("mlruns/*/*/artifacts/coefficients.png", b"IEND", b""), "the tracked runs"),
    "a file left over": (lambda folder: (folder / "data/x.partial").touch(), "the files"),
    "another checkpoint": (lambda folder: next(folder.glob("data/06*/*/*/*/checkpoint.pt")).unlink(), "Error"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_wrong_is_seen(stage: Stage, what: str) -> None:
    tamper, named = TAMPERED[what]
    stage.start_from(FINISHED)
    assert not stage.differences()
    tamper(stage.project.folder)
    assert named in stage.differences()


def test_the_table_counts() -> None:
    fault = Fault(faults.KILLED, "at once", "fresh", ("checkpoint", "write"), 1, 0)
    text = document([Outcome(fault, "survived"), Outcome(fault, "refused", ("/a/project/b: delete it.",))], 0, 60)
    assert "| killed with SIGKILL | 2 | 1 | 1 | 0 |" in text
    assert "| checkpoint | 2 |" in text
    assert "  1 × b: delete it." in text


def test_the_page_is_of_a_whole_campaign() -> None:
    (counts,) = re.findall(
        r"\| \*\*all\*\* \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", DOCUMENT.read_text(encoding="utf-8")
    )
    injected, survived, refused, lost = map(int, counts)
    assert injected == survived + refused >= 200
    assert lost == 0
