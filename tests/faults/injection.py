"""A fault's course: the run that it strikes, the repair that the error message asks for, and the verdict."""

import contextlib
import errno
import hashlib
import io
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked_runs
import moments
import torch
from faults import (
    AWAY,
    BEFORE,
    BEFORE_MISSING,
    DAMAGED,
    FOREIGN,
    FROM_THE_START,
    FULL,
    KILLED,
    LINK,
    LOST,
    MEMORY,
    REFUSED,
    SURVIVED,
    TERMINAL,
    TERMINAL_WAYS,
    UNREADABLE,
    WORKER,
    Fault,
    Outcome,
)
from moments import (
    CHECKPOINT,
    DATA,
    FIGURE,
    PARTITION,
    REPORT,
    RESULT,
    SETTINGS,
    Moments,
)
from stage import EXPERIMENT, FRESH, Stage, running

FOLDERS = {
    CHECKPOINT: "data/06_models",
    PARTITION: "data/03_primary",
    RESULT: "data/07_model_output",
    REPORT: "data/08_reporting",
}
INSTRUCTIONS = re.compile(
    "[dD]elete it|see that|free some space|put it back|the same command again|correct|save it again"
)
"""The words with which error messages say what to do."""


def inject(fault: Fault, stage: Stage) -> Outcome:
    """Inject a fault into a run, do what its error message says, start it again, and judge the end."""
    begun = time.monotonic()
    outcome = _inject(fault, stage)
    return replace(outcome, seconds=time.monotonic() - begun)


def _inject(fault: Fault, stage: Stage) -> Outcome:
    stage.start_from(fault.start)
    ended, struck = _run_with(fault, stage)
    if not struck:
        return Outcome(fault, "")
    said = list(ended.sentences)
    wrong = _wrong_end(fault, ended, stage.project.folder)
    if not wrong and ended.code == 0 and fault.kind != AWAY and (different := stage.differences()):
        wrong = f"it ended as if well, and is not: {different}"
    for _ in range(2):  # what was damaged may be noticed only when the run is started again
        if wrong:
            break
        REPAIRS.get(fault.kind, lambda *_: None)(fault, stage.project.folder, said)
        ended = stage.run()
        wrong = _wrong_end(fault, ended, stage.project.folder)
        if ended.code == 0:
            if not wrong and (different := stage.differences()):
                wrong = f"started again, it is not as it should be: {different}"
            return Outcome(fault, LOST if wrong else REFUSED if said else SURVIVED, tuple(said), wrong)
        if said:
            wrong = wrong or f"after the repair it ended with {ended.code}"
        said += ended.sentences
    return Outcome(fault, LOST, tuple(said), f"{wrong}:\n{ended.output}")


def _run_with(fault: Fault, stage: Stage) -> tuple[forked_runs.Ended, bool]:
    """Return how the run with the fault ended, and whether the fault was injected."""
    folder, when = stage.project.folder, fault.moment and fault.moment[1]
    if fault.kind == WORKER:
        _two_workers(stage)
    if fault.kind == LINK:
        _break_link(folder / FOLDERS[fault.place])
        return stage.run(), True
    if when in (BEFORE, BEFORE_MISSING):
        _damage(_victim(fault, folder), fault)
        return stage.run(arguments=("--only-missing-outputs",) if when == BEFORE_MISSING else ()), True
    how: dict[str, Any] = {"kill_after": fault.amount} if when is None else {"watch": _watch(fault, folder)}
    ended = stage.run(**how)
    return ended, ended.fired


def _wrong_end(fault: Fault, ended: forked_runs.Ended, folder: Path) -> str:
    """Return what is wrong with the way in which a run ended; empty if nothing is."""
    if ended.code is None:
        return "it hung"
    if ended.code < 0:
        return "" if fault.kind == KILLED else f"it was ended by signal {-ended.code}"
    if "Traceback (most recent call last)" in ended.output:
        return "it showed a traceback"
    if ended.code == 0:
        return ""
    if len(ended.sentences) != 1 or not INSTRUCTIONS.search(ended.sentences[0]):
        return "it ended without a sentence that says what to do"
    cannot_be_told = fault.kind in (FULL, AWAY)  # MLflow
    not_begun = fault.start != FRESH and fault.place in (SETTINGS, DATA, PARTITION)  # what was killed before it
    return "its MLflow run is left RUNNING" if running(folder) and not (cannot_be_told or not_begun) else ""


def _watch(fault: Fault, folder: Path) -> Callable[[int], None]:
    """Return what a child does before the command: wait for the moment, and strike."""

    def watch(pipe: int) -> None:
        strike = STRIKES[fault.kind]

        def act(file: Path | None) -> None:
            strike(fault, folder, file, pipe)

        if fault.moment and fault.moment[1] == FROM_THE_START:
            _forbid_from_now(fault, _victim(fault, folder), pipe)
            return
        Moments(folder, fault.moment, fault.number, act).watch()

    return watch


def _kill(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    os.write(pipe, b"f")
    if fault.amount:
        os.write(pipe, f"k{int(fault.amount):03}".encode())
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def _fill(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    """Leave so many bytes on the disk; or let no file become longer."""
    os.write(pipe, b"f")
    if fault.way != "disk full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.amount), resource.RLIM_INFINITY))
        return
    with contextlib.suppress(OSError), open(folder.parent / "ballast", "wb", buffering=0) as ballast:
        while ballast.write(bytes(65536)):
            pass
    with contextlib.suppress(OSError), open(folder.parent / "ballast", "ab", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass
    if room := int(fault.amount) // 4096 * 4096:
        os.truncate(folder.parent / "ballast", (folder.parent / "ballast").stat().st_size - room)


def _make_room(fault: Fault, folder: Path, said: Any) -> None:
    (folder.parent / "ballast").unlink(missing_ok=True)


def _take_away(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    store, aside = folder / "mlflow.db", folder / "aside.db"
    os.write(pipe, b"f")
    if fault.way == "deleted":
        store.unlink()
    elif fault.way == "overwritten":
        shutil.copy(store, aside)
        store.write_bytes(b"\0" * 20_000)
    elif fault.way.startswith("locked"):
        _lock(store, 1.0 if fault.way.endswith("second") else 2 * forked_runs.DEADLINE)
    else:
        store.rename(aside)
        if fault.way == "replaced by a folder":
            store.mkdir()


def _lock(store: Path, seconds: float) -> None:
    """Lock the database from another process, which ends with the run."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            other = sqlite3.connect(store, timeout=5, isolation_level=None)
            with contextlib.suppress(sqlite3.OperationalError):
                other.execute("BEGIN IMMEDIATE")
            os.write(tell, b"!")
            time.sleep(seconds)
        os._exit(0)
    os.close(tell)
    os.read(ready, 1)


def _put_back(fault: Fault, folder: Path, said: Any) -> None:
    store, aside = folder / "mlflow.db", folder / "aside.db"
    if aside.exists():
        store.with_name("mlflow.db-journal").unlink(missing_ok=True)  # of the file that took its place
        if store.is_dir():
            store.rmdir()
        aside.replace(store)


def _forbid(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    assert file is not None
    raise _forbid_from_now(fault, file, pipe)


def _forbid_from_now(fault: Fault, file: Path, pipe: int) -> OSError:
    """From now on, let no one open this file for reading (permissions mean nothing to root); return what is raised."""
    number = errno.EACCES if fault.way == "not allowed" else errno.EIO
    text = os.strerror(number)

    def forbid(event: str, arguments: Any) -> None:
        if event != "open" or not isinstance(arguments[0], str | os.PathLike) or arguments[2] & moments.WRITING:
            return
        if Path(os.path.abspath(os.fspath(arguments[0]))) == file:
            raise OSError(number, text, str(arguments[0]))

    sys.addaudithook(forbid)
    os.write(pipe, b"f")
    return OSError(number, text, str(file))


def _damage_now(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    """Damage what was written with its sum: until that is there, what is read back is what counts."""
    assert file is not None
    if file.suffix == ".sha256" or file.with_name(f"{file.name}.sha256").exists():
        _damage(file, fault)
        os.write(pipe, b"f")


def _damage(file: Path, fault: Fault) -> None:
    """Cut a file short, or flip one of its bits."""
    if fault.way == FOREIGN:
        _write_foreign(file, fault.amount)
        return
    content = bytearray(file.read_bytes())
    position = int(fault.amount * len(content))
    if fault.way == "cut short":
        content = content[:position]
    else:
        content[position] ^= 1 << position % 8
    file.write_bytes(content)


def _write_foreign(file: Path, amount: float) -> None:
    """Give a checkpoint a content of another form, with its stamp and a right checksum."""
    from ktpfl_pipeline.core.rounds import checkpoint

    body, _, stamp = file.read_bytes().rpartition(checkpoint.MARK)
    content = torch.load(io.BytesIO(body), weights_only=True)
    changes = [{"state": None}, {"history": "text"}, {"state": [1, 2]}, {"history": [{"round": "one"}]}]
    content.update(changes[int(amount * len(changes))])
    made = io.BytesIO()
    torch.save(content, made)
    body = made.getvalue() + checkpoint.MARK + stamp.rpartition(b" ")[0] + b" "
    file.write_bytes(body + hashlib.sha256(body).hexdigest().encode())


def _use_up(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    """Raise what an allocator raises; the memory is free again when the command is given again."""
    os.write(pipe, b"f")
    if fault.way == "torch's":
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")
    raise MemoryError


def _take_terminal(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    full, closed, _ = TERMINAL_WAYS
    os.write(pipe, b"f")
    if fault.way == full:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif fault.way == closed:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
    else:
        sys.stdout.reconfigure(encoding="ascii", errors=sys.stdout.errors)  # type: ignore[union-attr]


def _break_link(place: Path) -> None:
    """Move a folder aside, if it exists, as if a disk was unmounted, and leave a broken link in its place."""
    if place.exists():
        place.rename(_aside(place))
    place.symlink_to("gone")


def _mend_link(fault: Fault, folder: Path, said: Any) -> None:
    place = folder / FOLDERS[fault.place]
    if place.is_symlink():
        place.unlink()
        if _aside(place).exists():
            _aside(place).rename(place)


def _aside(place: Path) -> Path:
    return place.parents[1] / "aside"


def _victim(fault: Fault, folder: Path) -> Path:
    """Return the file that a place has when nothing runs, drawn where it has several."""
    patterns = {
        CHECKPOINT: f"data/06_models/{EXPERIMENT}/*/*/checkpoint.pt",
        PARTITION: "data/03_primary/*/partition.csv",
        FIGURE: "data/08_reporting/*/*/figures/*.svg",
        RESULT: "data/07_model_output/*/*/result.json",
        REPORT: "data/08_reporting/*/*/*.*",
        SETTINGS: "conf/*/*.yml",
    }
    found = sorted(folder.glob(patterns[fault.place]))
    return found[(fault.number or int(fault.amount * 1000)) % len(found)]


def _delete_what_was_named(fault: Fault, folder: Path, said: list[str]) -> None:
    """Do what the sentence says: delete the file that it names."""
    for file in (folder / "data").rglob("*"):
        if file.is_file() and any(str(file.relative_to(folder)) in sentence for sentence in said):
            file.unlink()


def _kill_worker(fault: Fault, folder: Path, file: Path | None, pipe: int) -> None:
    workers = sorted(child.pid or 0 for child in multiprocessing.active_children())
    if not workers:
        return
    os.kill(workers[int(fault.amount * len(workers))], signal.SIGKILL)
    os.write(pipe, b"f")
    if fault.way != "one":
        from ktpfl_pipeline.core.executors.processes import _Worker

        usual = _Worker.ask

        def ask(worker: Any, call: Any) -> bool:
            asked = usual(worker, call)
            worker._process.kill()
            return asked

        _Worker.ask = ask  # type: ignore[method-assign]


def _two_workers(stage: Stage) -> None:
    parameters = stage.project.folder / "conf/test/parameters_hetero.yml"
    one = parameters.read_text()
    assert "executor: serial" in one
    parameters.write_text(one.replace("executor: serial", "executor: {processes: 2}"))


STRIKES: dict[str, Callable[[Fault, Path, Path | None, int], None]] = {
    KILLED: _kill,
    FULL: _fill,
    AWAY: _take_away,
    UNREADABLE: _forbid,
    DAMAGED: _damage_now,
    WORKER: _kill_worker,
    MEMORY: _use_up,
    TERMINAL: _take_terminal,
}
REPAIRS: dict[str, Callable[[Fault, Path, list[str]], None]] = {
    FULL: _make_room,
    AWAY: _put_back,
    DAMAGED: _delete_what_was_named,
    LINK: _mend_link,
}
