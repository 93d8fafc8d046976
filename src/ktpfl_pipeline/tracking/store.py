"""Access to MLflow's store, with one-sentence messages for its errors."""

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
"""Seconds to wait for a database that another process has locked, as in MLflow."""
SQLITE = "sqlite:///"
URI = "MLFLOW_TRACKING_URI"
"""MLflow's environment variable for the address of a store."""
LOCKED = "database is locked"
"""SQLite's message for a database that another process writes to. Such a database is intact; keep it."""
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""MLflow's environment variable for the number of retries if a server does not answer. The default takes minutes."""


def open_client(uri: str) -> Any:
    """Return MLflow's client of a store. A missing SQLite file is created. Raises InputError if the store fails."""
    # mlflow reads both variables on import: they disable telemetry, and reduce the log to warnings.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs tracebacks of its errors
    from mlflow import MlflowClient

    try:
        file = _sqlite_file(uri)
        if file and file.exists():  # for an invalid file, MLflow would retry for two minutes
            with contextlib.closing(sqlite3.connect(file, timeout=BUSY)) as opened:
                opened.execute("PRAGMA schema_version").fetchone()
        with alone(file.parent) if file else impatient():  # otherwise two processes could both create tables
            if file and not file.exists():
                _make(file)
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except Exception as error:  # the type of error depends on the kind of store
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
    """Create an empty database under a temporary name, and rename it: MLflow cannot use an incomplete database."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    made: Any = SqlAlchemyStore  # the class has no type annotations
    with replacing(file) as partial:
        made(f"{SQLITE}{partial}", "mlruns").engine.dispose()


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Limit MLflow to one retry if a server does not answer, unless the environment variable is already set."""
    theirs = os.environ.get(RETRIES)
    os.environ.setdefault(RETRIES, "1")
    try:
        yield
    finally:
        if theirs is None:
            os.environ.pop(RETRIES, None)


class Store:
    """An open store. Its errors become one-sentence messages, and a deleted or replaced SQLite file is an error.

    A run that cannot be tracked stops. Its progress is in its checkpoint, and missing metrics are logged when the run
    is started again.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        """Open the store, and remember the identity of an SQLite file. The arguments are as for `MlflowTracker`."""
        self.uri, self.artifacts = uri, artifacts
        self.client = open_client(uri)
        self.file = _sqlite_file(uri)
        self.opened = _identity(self.file)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Lock an SQLite store against other processes of this project; no effect for other stores."""
        return alone(self.file.parent) if self.file else contextlib.nullcontext()

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Yield MLflow's client, for reading or logging.

        Raises InputError if the store or its artifacts cannot be accessed, or the SQLite file was deleted or replaced.
        """
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield self.client
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise self._error(_reason(error)) from error
        if _identity(self.file) != self.opened:  # SQLite continues to write to a deleted file
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
    """Return the advice for a failed store: to end the locking process if the store is locked, else `otherwise`."""
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
    """Return the cause of a library's error: the system's message if any, else the innermost error's first line."""
    if (found := system_error(error)) is not None:
        return f"{found.strerror}{f': {found.filename}' if found.filename else ''}"
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return str(innermost).strip().partition("\n")[0]
