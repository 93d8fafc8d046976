"""The moments of a run: whatever it opens, renames, says to its database or trains is counted, by the place it is in.

A fault is injected at the k-th moment of a place. Python's audit events tell of files, SQLite's trace of statements.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

SETTINGS, DATA, PARTITION = "settings", "data loading", "partition"
TRAINING, DISTILLATION = "local training", "distillation"
CHECKPOINT, RESULT, FIGURE, REPORT = "checkpoint", "result", "figure", "report"
DATABASE, ARTIFACT = "MLflow database", "MLflow artifacts"
CLIENTS = "between two clients"
PLACES = (
    (("conf",), SETTINGS),
    (("data", "01_raw"), DATA),
    (("data", "03_primary"), PARTITION),
    (("data", "05_model_input"), PARTITION),
    (("data", "06_models"), CHECKPOINT),
    (("data", "07_model_output"), RESULT),
    (("data", "08_reporting"), REPORT),
    (("mlruns",), ARTIFACT),
    (("tmp",), ARTIFACT),
)
WRITING = os.O_WRONLY | os.O_RDWR
STATEMENTS = ("INSERT", "UPDATE", "DELETE", "COMMIT", "CREATE", "BEGIN")

Moment = tuple[str, str]
"""The place, and ``read``, ``write``, ``rename``, ``step``, ``client`` or ``statement``."""


def place_of(project: Path, file: Any) -> str | None:
    """Return the place of a file of the project; None for any other."""
    if not isinstance(file, str | bytes | os.PathLike):
        return None
    path = os.path.abspath(os.fsdecode(file))
    if not path.startswith(f"{project}{os.sep}"):
        return None
    parts = Path(path).relative_to(project).parts
    if parts[0] == "data" and "figures" in parts:
        return FIGURE
    return next((place for start, place in PLACES if parts[: len(start)] == start), None)


class Moments:
    """Counts the moments of this process, and acts at the chosen one.

    Attributes:
        counts: how many there were of each kind.
        files: of each kind, the file of each moment.
    """

    def __init__(self, project: Path, at: Moment | None, number: int, act: Callable[[Path | None], None]) -> None:
        """Watch nothing yet.

        Args:
            project: the folder.
            at: what to wait for; None only counts.
            number: which of them, from 1.
            act: what then happens; it is given the file. What it raises is raised where the file is opened.
        """
        self.project, self.at, self.number, self.act = project, at, number, act
        self.counts: Counter[Moment] = Counter()
        self.process = os.getpid()
        self.phase = ""

    def watch(self) -> None:
        """Be told of what happens, from now on."""
        import sqlalchemy

        from ktpfl_pipeline.core.client import sgd
        from ktpfl_pipeline.core.executors.base import Executor
        from ktpfl_pipeline.runs.progress import SeedProgress

        sgd.step = self._told(sgd.step, lambda *_: self._step())
        SeedProgress.phase = self._told(SeedProgress.phase, lambda *_: self.happened((CLIENTS, "client")))  # type: ignore
        Executor.run = self._told(Executor.run, self._begin)  # type: ignore[method-assign]
        sqlalchemy.event.listen(
            sqlalchemy.engine.Engine, "connect", lambda opened, _: opened.set_trace_callback(self._statement)
        )
        sys.addaudithook(self._audit)

    def happened(self, moment: Moment, file: Any = None) -> None:
        """Count a moment, and act if it is the one."""
        if os.getpid() != self.process:  # a worker's
            return
        self.counts[moment] += 1
        if moment == self.at and self.counts[moment] == self.number:
            self.act(None if file is None else Path(os.path.abspath(os.fsdecode(file))))

    def _told(self, function: Any, tell: Callable[..., None]) -> Any:
        @wraps(function)
        def telling(*arguments: Any, **named: Any) -> Any:
            tell(*arguments)
            return function(*arguments, **named)

        return telling

    def _begin(self, executor: Any, fed: Any, phase: str, *_: Any) -> None:
        self.phase = phase

    def _step(self) -> None:
        self.happened((DISTILLATION if self.phase == "distill" else TRAINING, "step"))

    def _audit(self, event: str, arguments: Any) -> None:
        if event == "open" and (place := place_of(self.project, arguments[0])):
            self.happened((place, "write" if arguments[2] & WRITING else "read"), arguments[0])
        elif event == "os.rename" and (place := place_of(self.project, arguments[1])):
            self.happened((place, "rename"), arguments[1])

    def _statement(self, text: str) -> None:
        if text.lstrip().upper().startswith(STATEMENTS):
            self.happened((DATABASE, "statement"))
