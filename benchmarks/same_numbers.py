"""Checks that a refactoring changed no number: every method at an earlier commit and here, compared bit for bit.

    python benchmarks/same_numbers.py <commit>

Each method of the registry runs serially with one seed of `--env=test`, first in a copy of the project with the source
of the commit, and then in a copy with the source of the working tree. The script compares their checkpoints: the states
between rounds, the coefficients over the rounds, accuracies, losses, and bytes, but not wall times. It ends with 1 if
anything differs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
RENAMED = {"knowledge": "coefficients"}
"""The new names of renamed fields of states, by their earlier names."""


def main() -> None:
    """Run both, compare, and print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what is compared with")
    parser.add_argument("--only", nargs="*", help="registry names of methods; all of them by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(earlier), given.commit], check=True)
        try:
            then, now = (train(tree, Path(folder) / f"runs-{i}", given.only) for i, tree in enumerate([earlier, ROOT]))
        finally:
            subprocess.run([*git, "remove", "--force", str(earlier)], check=True)
        if then.keys() != now.keys():
            sys.exit(f"Not in both: {', '.join(sorted(then.keys() ^ now.keys()))}.")
        found = {method: differences(comparable(then[method]), comparable(now[method])) for method in then}
    for method, different in found.items():
        print(f"{method:22} {'; '.join(different[:3]) or 'bit-identical'}")
    changed = sum(map(bool, found.values()))
    print(f"{len(found)} methods, {changed} differ from {given.commit}")
    sys.exit(changed > 0)


def train(tree: Path, project: Path, only: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the checkpoint of every method's run with the source in `tree`, by registry name."""
    shutil.copytree(tree / "conf", project / "conf", ignore=shutil.ignore_patterns("local"))
    shutil.copy(tree / "pyproject.toml", project)
    for part in ("conf/local", "src", "data/01_raw"):
        (project / part).mkdir(parents=True)
    (project / "conf" / "test" / "tracking.yml").write_text("enabled: false\n")
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(tree / "benchmarks" / "same_numbers_run.py"), *(only or [])]
    subprocess.run(command, cwd=project, env=environment, check=True)
    files = sorted(project.glob("data/06_models/*/*/seed-0-*/checkpoint.pt"))
    return {file.parents[1].name: torch.load(file, weights_only=True) for file in files}


def comparable(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a checkpoint that must be equal, by unchanged names and without empty fields."""
    state = {RENAMED.get(name, name): value for name, value in checkpoint["state"].items()}
    history = [
        {name: value for name, value in record.items() if name != "seconds" and value != {}}
        for record in checkpoint["history"]
    ]
    return {"state": state, "history": history, "coefficients": checkpoint["coefficients"]}


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the places at which two values differ in a bit, a type or a name."""
    if isinstance(one, dict) and isinstance(other, dict):
        parts = [(str(name), one.get(name), other.get(name)) for name in {**one, **other}]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        parts = [(str(place), *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [path]
    else:
        return [] if type(one) is type(other) and one == other else [path]
    return [place for name, a, b in parts for place in differences(a, b, f"{path}/{name}" if path else name)]


if __name__ == "__main__":
    main()
