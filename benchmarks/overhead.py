"""The cost of safety: the shares of checkpoints, checks of numbers and tracking in the time of a round.

    python benchmarks/overhead.py

writes benchmarks/results/<date>-overhead.md. The workload is KT-pFL as in `training.py`: 5 clients of each of the
paper's four architectures, 3,000 public images, one local epoch and one distillation step. The run uses the fastest
way, with which the share is largest. Of two rounds, the second is counted. Checks of weights run in parallel in the
workers, so their seconds are divided by the number of workers.
"""

import tempfile
import time
from collections.abc import Callable
from functools import wraps
from multiprocessing import Value
from pathlib import Path
from typing import Any

import measure
from workloads import WORKLOADS, federation

from ktpfl_pipeline import methods, tracking
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core import federation as core
from ktpfl_pipeline.core.executors import processes, serial
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.settings import ExecutorSettings

ROUNDS = 2
IN_WORKERS = "weights after training and distillation are finite"
TRACKING = "a round's points in MLflow"
PARTS: dict[str, list[tuple[Any, str]]] = {
    "checkpoint: write, checksum, force to the disk": [(checkpoint, "save")],
    IN_WORKERS: [(serial, "checked"), (processes, "checked")],
    "predictions are finite": [(core, "check_finite")],
    "teachers are distributions": [(core, "check_teachers")],
    TRACKING: [],
}


def timed(function: Callable[..., Any], seconds: Any) -> Callable[..., Any]:
    """Return a function that adds the seconds of each call to a number that processes share."""

    @wraps(function)
    def watched(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            with seconds.get_lock():
                seconds.value += time.perf_counter() - start

    return watched


def main() -> None:
    """Run, and write the table."""
    cores = resources.cores()
    spent = {part: Value("d", 0.0) for part in PARTS}
    for part, places in PARTS.items():
        for module, name in places:
            setattr(module, name, timed(getattr(module, name), spent[part]))  # before workers are forked
    work, way = WORKLOADS["kt_pfl"], {"dtype": measure.DTYPES[-1], "memory_format": "channels_last"}
    fed = federation(work, executor=ExecutorSettings(cores), **way)
    before: dict[str, float] = {}
    entry = tracking.Entry("overhead", "overhead", "0", {}, {})
    with tempfile.TemporaryDirectory() as folder:
        file, store = Path(folder) / "checkpoint.pt", f"sqlite:///{folder}/mlflow.db"
        with tracking.MlflowTracker(store, Path(folder)).run(entry) as tracked:
            log = timed(tracked.round, spent[TRACKING])

            def round_ends(record: Any) -> None:
                log(record)
                if record.round == ROUNDS - 1:
                    before.update({part: seconds.value for part, seconds in spent.items()}, start=time.perf_counter())
                if record.round == ROUNDS:
                    before["end"] = time.perf_counter()

            schedule, observer = engine.Schedule(ROUNDS), engine.Observer(round=round_ends)
            run = engine.run(methods.create("kt_pfl"), fed, schedule, checkpoint_file=file, observer=observer)
        size = file.stat().st_size
    fed.executor.close()
    whole = before["end"] - before["start"]
    taken = {part: seconds.value - before[part] for part, seconds in spent.items()}
    taken[IN_WORKERS] /= cores
    seconds = run.history[-1].seconds
    work_of_clients = sum(value for phase, value in seconds.items() if phase not in ("server", "round"))
    sums = {
        "all of these": sum(taken.values()),
        "the server: mixture, matrix, and what lies between the phases": seconds["server"],
        "all outside training, predictions, distillation and evaluation": whole - work_of_clients,
    }
    lines = [
        f"# What checkpointing and checks cost, {measure.today()}",
        "",
        f"{measure.hardware()}. KT-pFL, {len(work.architectures)} clients, {work.public} public images,",
        f"{cores} workers, {measure.DTYPES[-1]}, channels last; the second round, {whole:.1f} s in all. The",
        f"checkpoint has {size / 1e6:,.0f} MB.",
        "",
        "| part | seconds | share of the round |",
        "| --- | --- | --- |",
        *(f"| {part} | {value:.3f} | {value / whole:.2%} |" for part, value in {**taken, **sums}.items()),
    ]
    print("\n".join(lines))
    measure.write("overhead", lines)


if __name__ == "__main__":
    main()
