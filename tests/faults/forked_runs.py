"""Real runs in child processes, cheaply: a parent that has imported everything forks one child for each run.

The child gives the real command line, ``kedro run --env=test``, in a project of its own. It differs from a fresh
process in that its imports took no time, and in that its figures are blank: drawing them would be two thirds of a run.
"""

import contextlib
import gc
import importlib
import importlib.util
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import blank

COMMAND = ["kedro", "run", "--env=test", "--pipelines=hetero_digits"]
IMPORTED = (
    *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "mlflow.store.artifact.local_artifact_repo"),
    *("kedro.framework.cli.cli", "kedro.framework.cli.project", "kedro.framework.session", "kedro.runner"),
    *("matplotlib.pyplot", "matplotlib.backends.backend_svg", "pandas", "torch"),
    *("torchvision", "sklearn.datasets", "scipy.stats", "scipy.optimize", "jinja2", "optuna", "rich.progress"),
    *("ktpfl_pipeline.pipeline_registry", "ktpfl_pipeline.pipelines.datasets", "ktpfl_pipeline.tracking"),
    *("ktpfl_pipeline.runs.run", "ktpfl_pipeline.reports.comparison"),
    *("ktpfl_pipeline.hooks", "ktpfl_pipeline.methods.kt_pfl", "ktpfl_pipeline.data.public"),
    "kedro_viz.integrations.kedro.hooks",
)
ABSENT = ("ibis",)
"""Kedro tries to import it for every dataset in memory: a third of a run."""
DEADLINE = 120.0
"""Seconds after which a run is taken to hang: a hundred times what it takes."""


_prepared: dict[str, Any] = {}


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: its exit status; the negative number of the signal that ended it; None: it hung.
        output: what it wrote to the terminal.
        fired: whether its fault was injected.
        seconds: how long it took.
    """

    code: int | None
    output: str
    fired: bool
    seconds: float

    @property
    def sentences(self) -> list[str]:
        """The errors that it was ended with."""
        return [line.removeprefix("Error: ") for line in self.output.splitlines() if line.startswith("Error: ")]


def prepare() -> None:
    """Import what runs need and read the source that each of them hashes, before the first of them is forked."""
    os.environ.update(KEDRO_DISABLE_TELEMETRY="1", MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_LOGGING_LEVEL="WARNING")
    for name in IMPORTED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    from ktpfl_pipeline import pipeline_registry
    from ktpfl_pipeline.runs import identity

    made = pipeline_registry.register_pipelines()
    for file in (identity.PACKAGE / "core").rglob("*.py"):
        identity._meaning(file, file.stat().st_mtime_ns)
    _prepared.update(pipelines=made)


def _save_time() -> None:
    """Let figures be blank, and written as ever; take the pipelines that are made; look for no package in vain.

    And let libyaml read YAML.
    """
    import yaml
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from ktpfl_pipeline import pipeline_registry

    Figure.draw, Figure.savefig = blank.draw, blank.save  # type: ignore[method-assign]
    ConstrainedLayoutEngine.execute = blank.leave  # type: ignore[method-assign]
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
    pipeline_registry.register_pipelines = lambda: _prepared["pipelines"]
    for name in ABSENT:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]


def run(
    project: Path,
    watch: Callable[[int], None] | None = None,
    arguments: tuple[str, ...] = (),
    kill_after: float | None = None,
) -> Ended:
    """Give the command in a child, and wait for its end.

    Args:
        project: the folder.
        watch: called in the child before the command with a pipe's end. What is written there is ``f``, the fault was
            injected; or ``k`` and milliseconds in three digits: kill me after so long.
        arguments: further ones of the command.
        kill_after: seconds after which the parent kills the child.
    """
    (output, told), (requests, asked) = os.pipe(), os.pipe()
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_run(project, told, asked, watch, arguments)
    os.close(told)
    os.close(asked)
    written, fired, ends = bytearray(), False, begun + DEADLINE
    kill_at = None if kill_after is None else begun + kill_after
    status: int | None = None
    while status is None and time.monotonic() < ends:
        wait = min(0.02, max(0.0, (kill_at or ends) - time.monotonic()))
        for pipe in select.select([output, requests], [], [], wait)[0]:
            message = os.read(pipe, 65536)
            if pipe == output:
                written += message
            elif message:
                fired = True
                if b"k" in message:
                    kill_at = time.monotonic() + int(message[message.index(b"k") + 1 :][:3]) / 1000
        if kill_at is not None and time.monotonic() >= kill_at:
            os.kill(child, signal.SIGKILL)
            fired, kill_at = True, None
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the run where it hangs, and whoever it left
    if status is None:
        os.waitpid(child, 0)
    while rest := os.read(output, 65536):
        written += rest
    fired = fired or bool(select.select([requests], [], [], 0)[0] and os.read(requests, 1))
    os.close(output)
    os.close(requests)
    code = None if status is None else os.waitstatus_to_exitcode(status)
    return Ended(code, written.decode(errors="replace"), fired, time.monotonic() - begun)


def _be_the_run(
    project: Path, told: int, asked: int, watch: Callable[[int], None] | None, arguments: tuple[str, ...]
) -> None:
    """Become the command: never returns."""
    code: Any = 1
    try:
        os.setsid()
        os.dup2(told, 1)
        os.dup2(told, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - the parent's may be caught by pytest
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        gc.freeze()  # looking for garbage in what the parent left would copy all of its memory
        os.chdir(project)
        temporary = project / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ.update(TMPDIR=str(temporary), COLUMNS="200", OMP_NUM_THREADS="1")
        sys.argv = [*COMMAND, *arguments]
        _save_time()
        if watch is not None:
            watch(asked)
        from kedro.framework.cli.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
