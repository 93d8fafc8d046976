"""The seconds from `kedro run` to the first training step on digits, in a fresh copy of the project.

    python benchmarks/startup.py           writes benchmarks/results/<date>-startup.md

The first call in a project makes the tracking database, and later calls find it.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure

ROOT = Path(__file__).parents[1]
OPTIONS = ["run", "--env=quick", "--pipelines=hetero_digits"]
TURNS = 5
KEDRO = """
import os
from pathlib import Path
from kedro.framework.cli.cli import main
from ktpfl_pipeline.core.client import operations
step = sgd.step
def told(*arguments):
    Path(os.environ["FIRST_STEP"]).touch()
    step(*arguments)
sgd.step = told
main()
"""
"""The command, with a training step that writes a mark in whichever process it runs."""


def copy(folder: Path) -> None:
    """Copy the parts of the project that a run needs."""
    for name in ("pyproject.toml", ".telemetry", "conf", "src"):
        source = ROOT / name
        copied = shutil.copytree if source.is_dir() else shutil.copy
        copied(source, folder / name)
    (folder / "data").mkdir()


def first_step(folder: Path) -> float:
    """Start a run, end it at its first training step, and return the seconds from start to step."""
    mark = folder / "step"
    mark.unlink(missing_ok=True)
    shutil.rmtree(folder / "data" / "06_models", ignore_errors=True)
    start = time.perf_counter()
    run = subprocess.Popen(
        [sys.executable, "-c", KEDRO, *OPTIONS],
        cwd=folder,
        env={**os.environ, "FIRST_STEP": str(mark), "PYTHONPATH": str(folder / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not mark.exists():
        if run.poll() is not None:
            sys.exit(f"kedro {' '.join(OPTIONS)} ended with {run.returncode} before a training step.")
        time.sleep(0.005)
    taken = time.perf_counter() - start
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return taken


def main() -> None:
    """Measure, and write the result."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy(folder)
        fresh = first_step(folder)
        taken = [first_step(folder) for _ in range(TURNS)]
    lines = [
        f"# From `kedro {' '.join(OPTIONS)}` to the first training step, {measure.today()}",
        "",
        f"{measure.hardware()}.",
        "",
        "| call | seconds |",
        "| --- | --- |",
        f"| the project's first, which makes the tracking database | {fresh:.1f} |",
        f"| after it, median of {TURNS} ({min(taken):.1f} to {max(taken):.1f}) | {statistics.median(taken):.1f} |",
    ]
    print("\n".join(lines))
    measure.write("startup", lines)


if __name__ == "__main__":
    main()
