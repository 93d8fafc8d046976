"""What can go wrong with MLflow's store, in one sentence each."""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ktpfl_pipeline.core.errors import InputError, system_error
from ktpfl_pipeline.core.machine.files import alone, replacing

BUSY = 20.0
"""Seconds to wait for a database that another process has locked, as MLflow does."""
SQLITE = "sqlite:///"
URI = "MLFLOW_TRACKING_URI"
"""The variable with which MLflow's users name a store."""
LOCKED = "database is locked"
"""SQLite's words for a database that another process writes to; nothing is wrong with it, so nothing may be deleted."""
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""How often MLflow asks a server again that does not answer; by default it does for minutes."""


def open_client(uri: str) -> Any:
    """Return MLflow's client of a store, which is made where it is missing; an InputError says why it cannot be."""
    # Both are read when mlflow is first imported: send nothing, and keep its log to what went wrong.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # logs the traceback of what it raises
    from mlflow import MlflowClient

    try:
        file = _sqlite_file(uri)
        if file and file.exists():  # raise at once what MLflow would try for two minutes: no database, a folder
            with contextlib.closing(sqlite3.connect(file, timeout=BUSY)) as opened:
                opened.execute("PRAGMA schema_version").fetchone()
        with alone(file.parent) if file else impatient():  # two at once would both make its tables
            if file and not file.exists():
                _make(file)
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except Exception as error:  # a store can fail in as many ways as there are stores
        place = f"the variable {URI}" if os.environ.get(URI, "").strip() == uri else "`store` in conf/base/tracking.yml"
        if file:
            reason = str(error).strip().partition("\n")[0]
            lost = "put it back, or delete what is left of it, and a new one is made from the checkpoints"
            remedy = _remedy(reason, lost)
        else:
            reason, remedy = _reason(error), "check that its server runs and answers"
        raise InputError(
            f"MLflow cannot open the store {uri} ({reason}); {remedy}, or correct {place}, or run without MLflow, "
            "`enabled: false` in conf/base/tracking.yml."
        ) from error
    return client


def _make(file: Path) -> None:
    """Make an empty database next to its place, which it then takes: MLflow cannot go on with half of one."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    made: Any = SqlAlchemyStore  # is not typed
    with replacing(file) as partial:
        made(f"{SQLITE}{partial}", "mlruns").engine.dispose()


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Ask a server that does not answer once again, and not for minutes; what the environment says goes before."""
    theirs = os.environ.get(RETRIES)
    os.environ.setdefault(RETRIES, "1")
    try:
        yield
    finally:
        if theirs is None:
            os.environ.pop(RETRIES, None)


class Store:
    """An open store: what fails there is one message, and a file that vanishes is noticed.

    A run stops where it cannot be tracked. All that it trained is in its checkpoint by then, and the points that are
    missing are logged when it is started again.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        """Open the store, and remember which file it is, where it is one; see `MlflowTracker` for the arguments."""
        self.uri, self.artifacts = uri, artifacts
        self.client = open_client(uri)
        self.file = _sqlite_file(uri)
        self.opened = _identity(self.file)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from checking for the store and making it; only for a store in a file."""
        return alone(self.file.parent) if self.file else contextlib.nullcontext()

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Yield MLflow's client, to read or log something.

        An `InputError` says that store or artifacts cannot be reached, or that the store is another one than before.
        """
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield self.client
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise self._error(_reason(error)) from error
        if _identity(self.file) != self.opened:  # SQLite goes on writing to a file that was deleted
            raise self._error("it was deleted, moved or replaced while the run went on")

    def _error(self, reason: str) -> InputError:
        place = f" (files: {self.artifacts})" if self.file else ""
        remedy = _remedy(reason, "put it back where it was moved, free some space where the disk is full")
        return InputError(
            f"MLflow's store {self.uri}{place} could not be used ({reason}): {remedy}, or run without MLflow, "
            "`enabled: false` in conf/base/tracking.yml, and give the same command again. The run then continues after "
            "its checkpoint and logs the missing points."
        )


def _remedy(reason: str, otherwise: str) -> str:
    """Return what to do about a store that fails for a reason: of a locked one nothing is lost, and nothing to free."""
    return f"end the process that writes to it, for more than {BUSY:.0f} seconds now" if reason == LOCKED else otherwise


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Return values that identify a file and differ if it is replaced; None if there is no file."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _reason(error: BaseException) -> str:
    """Return what is behind the error of a library: the system's words where there are some, else its first line."""
    if (found := system_error(error)) is not None:
        return f"{found.strerror}{f': {found.filename}' if found.filename else ''}"
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return str(innermost).strip().partition("\n")[0]
