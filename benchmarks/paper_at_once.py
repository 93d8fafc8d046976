"""Missing runs of the paper's tables in several processes on one machine, for a GPU that one run leaves mostly idle.

    python benchmarks/paper_at_once.py light 12 --only table1 --seeds 0 1 --minutes 8
    python benchmarks/paper_evidence.py keep light

The settings, data and runs are those of `make paper SCALE=light`, with samples from files. Each process takes the next
unfinished run that no other process has taken. A run that does not finish in time keeps its checkpoint, and the next
call continues it. Like `make paper`, the script writes finished runs to data/07_model_output/paper_evidence.json.gz.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from paper_evidence import FINISHED, ROOT

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.studies import PAPER, Paper
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.runs import paper as paper_pipeline
from ktpfl_pipeline.runs import study
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS, InheritingConfigLoader

COMPUTE = {"dtype": "float32", "memory_format": "contiguous", "threads": 1, "executor": "serial"}
"""Fixed settings, because `auto` measures times and could choose differently in each of several parallel processes."""
RUNS = "07_model_output/paper"
CHECKPOINTS = "06_models"
"""The folder of checkpoints in data/, the same as for `make paper`."""
TAKEN = ".taken"
"""The ending of the file that marks a run as taken by a process."""
SAVED_EVERY = 30.0
"""The seconds between two writes of finished runs, so that few are lost if the machine is withdrawn."""


def settings(asked: argparse.Namespace) -> tuple[Paper, dict[str, Any]]:
    """Return the paper's section at a scale, with the options `asked`, and all parameters."""
    parameters = InheritingConfigLoader(str(ROOT / "conf"), env=asked.scale, **CONFIG_LOADER_ARGS)["parameters"]
    section = parameters[PAPER]
    section["parts"] = {name: part for name, part in section["parts"].items() if part and name in asked.only}
    for part in section["parts"].values():
        part.pop("seeds", None)
        if asked.methods:
            part["methods"] = [name for name in part["methods"] if name in asked.methods]
        if asked.columns:
            part["columns"] = {label: part["columns"][label] for label in asked.columns if label in part["columns"]}
        part["settings"] = {**part.get("settings", {}), "compute": COMPUTE}
    emptied = {name for name, part in section["parts"].items() if not part["methods"] or not part["columns"]}
    only = [name for name in asked.only if name not in emptied]
    if not only:
        parts = ", ".join(asked.only)
        raise SystemExit(f"No part of {parts} has these methods and columns at the scale {asked.scale}.")
    section["parts"] = {name: part for name, part in section["parts"].items() if name in only}
    section |= {"only": only, "seeds": asked.seeds, "files": True}
    return parsing.parse_paper(section, parameters), parameters


def planned(asked: argparse.Namespace) -> tuple[Paper, list[study.Planned]]:
    """Return the paper's section and its cells with their data."""
    paper, parameters = settings(asked)
    return paper, study.plan(PAPER, parsing.paper_cells(paper, parameters), ROOT / "data/01_raw")


def work(asked: argparse.Namespace, data: Path, number: int) -> None:
    """Run all runs that are neither finished nor taken by another process, seed by seed, and report failed runs."""
    torch.set_num_threads(1)
    tracking.configure({"enabled": False, "checkpoints": str(data / CHECKPOINTS)}, ROOT)
    folder = data / RUNS
    cells = planned(asked)[1]
    done, runs = paper_pipeline.finished(cells, folder), study.in_turn(cells)
    print(f"process {number} is ready", flush=True)
    for key, (each, seed) in sorted(runs.items(), key=lambda item: item[1][1]):
        if key in done:
            continue
        try:
            (folder / f"{key}{TAKEN}").touch(exist_ok=False)
        except FileExistsError:
            continue
        began, cell = time.monotonic(), each.cell
        try:
            paper_pipeline.run(each, seed, key, folder)
        except Exception as error:  # the other runs continue
            outcome = f"failed, {type(error).__name__}: {error}"
        else:
            outcome = f"{time.monotonic() - began:.0f} s"
        print(f"{cell.part}, {cell.experiment}, {cell.label}, {cell.method}, seed {seed}: {outcome}", flush=True)


def forget(folder: Path) -> None:
    """Delete the marks of taken runs, including marks of a call that was stopped."""
    for taken in folder.glob(f"*{TAKEN}"):
        taken.unlink()


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the processes, stop them when the time is over, and write the finished runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scale", help="a folder of conf/: light, paper")
    parser.add_argument("processes", type=int)
    parser.add_argument("--only", nargs="+", default=["table1"], help="parts of the paper")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--methods", nargs="+", help="some of the methods of each part")
    parser.add_argument("--columns", nargs="+", help="some of the columns of each part, by their labels")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--finished", type=Path, default=ROOT / FINISHED, help="the file to write")
    asked = parser.parse_args(arguments)
    settings(asked)  # an error before any process starts
    end, data = time.monotonic() + 60 * asked.minutes, ROOT / "data"
    folder = data / RUNS
    folder.mkdir(parents=True, exist_ok=True)
    forget(folder)
    context = get_context("spawn")
    paper, cells = planned(asked)
    study.check_possible(cells)
    workers = [context.Process(target=work, args=(asked, data, n), daemon=True) for n in range(asked.processes)]
    for worker in workers:
        worker.start()
    while working := [worker for worker in workers if worker.is_alive()]:
        working[0].join(max(0.0, min(SAVED_EVERY, end - time.monotonic())))
        if time.monotonic() >= end:
            break
        save(paper, cells, folder, asked.finished)
    for worker in workers:
        worker.kill()
        worker.join()
    forget(folder)
    done = save(paper, cells, folder, asked.finished)
    print(f"{done} of {len(study.in_turn(cells))} runs are finished; written to {asked.finished}")
    return 0


def save(paper: Paper, cells: list[study.Planned], folder: Path, file: Path) -> int:
    """Write the finished runs to `file`, and return their number."""
    found = paper_pipeline.collect(paper, cells, folder, {})
    with replacing(file) as partial:
        evidence.save(found, partial)
    return len({run.key for cell in found.cells for run in cell.runs})


if __name__ == "__main__":
    sys.exit(main())
