"""Profiles of a round: the operations with most time by torch.profiler, and the functions with most time by py-spy.

    pip install py-spy && python benchmarks/profiles.py

writes benchmarks/results/<date>-profiles.md.
The workloads are those of `training.py` with one client of each architecture and 500 public images. They run serially
with one thread, in float32 and in bfloat16, channels last. benchmarks/README.md describes the findings.
"""

import collections
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure
import torch
from torch.profiler import ProfilerActivity, profile
from training import engine_rounds
from workloads import WORKLOADS, Workload

from ktpfl_pipeline.core.machine import resources

SHOWN = 8
WATCHED = 5.0  # the least seconds of a profile
DTYPES = measure.DTYPES


def reduced(work: Workload) -> Workload:
    """Return the workload with one client of each architecture, which does not change the shares of time."""
    return replace(work, architectures=tuple(dict.fromkeys(work.architectures)), public=min(work.public, 500), rounds=1)


def rounds(name: str, dtype: str) -> Any:
    """Prepare a round, and run one round as a warm-up."""
    torch.set_num_threads(1)
    resources.keep_freed_memory()  # as workers do
    run = engine_rounds(reduced(WORKLOADS[name]), {"dtype": dtype, "memory_format": "channels_last"})
    run()
    return run


def operations(name: str, dtype: str) -> list[str]:
    """Return the operations with the most time, and their shares."""
    run = rounds(name, dtype)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        run()
    spent = {entry.key: entry.self_cpu_time_total for entry in seen.key_averages()}
    total, largest = sum(spent.values()), sorted(spent, key=lambda key: -spent[key])[:SHOWN]
    return [f"{key.removeprefix('aten::')} {spent[key] / total:.0%}" for key in largest]


def lines_of_python(name: str, dtype: str) -> list[str]:
    """Return the functions of this project and of torch with the most samples in their own lines."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks"
        command = ["py-spy", "record", "--rate", "200", "--format", "raw", "--output", str(raw), "--"]
        subprocess.run([*command, sys.executable, __file__, name, dtype], check=True, capture_output=True)
        found: collections.Counter[str] = collections.Counter()
        for line in raw.read_text().splitlines():
            stack, _, samples = line.rpartition(" ")
            if "repeat" in stack:  # after the preparation
                found[stack.split(";")[-1].rpartition(":")[0].replace(")", "").replace("(", "")] += int(samples)
    total = sum(found.values())
    return [f"`{place}` {samples / total:.0%}" for place, samples in found.most_common(SHOWN)]


def repeat(run: Any) -> None:
    """Repeat the work for a while. The name of this function distinguishes its samples from the preparation's."""
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        run()


def main() -> None:
    """Profile each workload, or do the work of one for py-spy to watch."""
    if len(sys.argv) > 1:
        repeat(rounds(*sys.argv[1:]))
        return
    lines = [f"# Where the time goes, {measure.today()}", "", f"{measure.hardware()}; one thread, channels last.", ""]
    for name in WORKLOADS:
        for dtype in DTYPES:
            lines += [f"## {name}, {dtype}", "", "torch.profiler, own time: " + ", ".join(operations(name, dtype)), ""]
            lines += ["py-spy, own samples: " + ", ".join(lines_of_python(name, dtype)), ""]
            print("\n".join(lines[-5:]), flush=True)
    measure.write("profiles", lines[:-1])


if __name__ == "__main__":
    main()
