"""Checks that a comparison with one process per box gives the same results as one process, bit for bit.

    python benchmarks/boxes.py

The script runs ``compare_hetero_digits`` twice with ``--env=test``, one round and one baseline, in temporary copies of
the project. It ends with an error if results differ, except in times and the tracker's ids.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME, EXPERIMENT, METHODS = "compare_hetero_digits", "hetero_digits", ("kt_pfl", "local", "fedmd")
SETTINGS = f"--params={EXPERIMENT}.compare=fedmd,{EXPERIMENT}.rounds=1,{EXPERIMENT}.theorem_samples=0"
VARYING = {"seconds", "run_id", "run_ids"}


def create(folder: Path) -> Path:
    """Return a copy of the project without results."""
    shutil.copytree(ROOT / "conf", folder / "conf", ignore=shutil.ignore_patterns("local"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for empty in ("conf/local", "src", "data/01_raw"):
        (folder / empty).mkdir(parents=True)
    return folder


def run(project: Path, *options: str) -> None:
    """Do ``kedro run`` with these options, and print its duration."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "kedro", "run", "--env=test", f"--pipelines={NAME}", SETTINGS, *options]
    subprocess.run(command, cwd=project, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(f"{' '.join(options) or 'one process'}: {time.perf_counter() - began:.0f} s", flush=True)


def result(project: Path, method: str) -> Any:
    """Return a method's saved result, without values that differ between equal runs."""

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: kept(each) for name, each in value.items() if name not in VARYING}
        return [kept(each) for each in value] if isinstance(value, list) else value

    return kept(json.loads((project / "data/07_model_output" / EXPERIMENT / method / "result.json").read_text()))


def main() -> None:
    """Run both and compare them."""
    with tempfile.TemporaryDirectory() as place:
        together, apart = (create(Path(place) / name) for name in ("together", "apart"))
        run(together)
        for box in ("data", *(f"methods.{method}" for method in METHODS), "methods.report"):
            run(apart, f"--namespaces={box}")
        others = [method for method in METHODS if result(together, method) != result(apart, method)]
        reports = [list((project / "data/08_reporting" / NAME).glob("*/report.html")) for project in (together, apart)]
    if others or not all(reports):
        sys.exit(f"Other results: {', '.join(others) or 'a report is missing'}.")
    print("Results are equal, bit for bit.")


if __name__ == "__main__":
    main()
