"""Checks that a refactoring changed no number: every method at an earlier commit and here, compared bit for bit.

    python benchmarks/same_numbers.py <commit>

Each method of the registry runs serially with one seed of `--env=test`, first in a copy of the project with the source
of the commit, and then in a copy with the source of the working tree. The script compares their checkpoints: the states
between rounds, the coefficients over the rounds, accuracies, losses, and bytes, but not wall times. It ends with 1 if
anything differs, and names the first place.
"""

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what is compared with")
    parser.add_argument("--only", nargs="*", help="registry names of methods; all of them by default")
    parser.add_argument("--here", action="store_true", help="only run the methods, in the project in this folder")
    given = parser.parse_args()
    if given.here:
        run(given.only)
        return
    from ktpfl_pipeline.check.toy import difference  # not of the earlier commit

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
        found = {method: difference(comparable(then[method]), comparable(now[method])) for method in then}
    for method, place in found.items():
        print(f"{method:22} {place or 'bit-identical'}")
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
    command = [sys.executable, __file__, "", "--here", *(["--only", *only] if only else [])]
    subprocess.run(command, cwd=project, env=environment, check=True)
    files = sorted(project.glob("data/06_models/*/*/seed-0-*/checkpoint.pt"))
    return {file.parents[1].name: torch.load(file, weights_only=True) for file in files}


def run(only: list[str] | None) -> None:
    """Run methods, each in a separate pipeline, in the project in the working directory."""
    from kedro.framework.project import configure_project
    from kedro.framework.session import KedroSession
    from kedro.runner import SequentialRunner

    from ktpfl_pipeline import pipeline_registry
    from ktpfl_pipeline.methods import METHODS, find
    from ktpfl_pipeline.pipelines.graphs import experiment_pipeline

    alike = {name: find(name).kind.one_architecture for name in only or METHODS}
    experiments = {name: "homo_digits" if one else "hetero_digits" for name, one in alike.items()}
    pipelines = {name: experiment_pipeline(name, section, [name]) for name, section in experiments.items()}
    registry: Any = pipeline_registry
    registry.register_pipelines = lambda: pipelines
    configure_project("ktpfl_pipeline")
    logging.disable(logging.INFO)
    session: Any
    for name, section in experiments.items():
        changes = {section: {"seeds": [0], "hyperparameters": "configured"}}
        with KedroSession.create(project_path=Path.cwd(), env="test", runtime_params=changes) as session:
            session.run(pipeline_names=[name], runner=SequentialRunner(), to_outputs=[f"{section}/{name}/result"])


def comparable(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a checkpoint that must be equal, without empty fields."""
    history = [
        {name: value for name, value in record.items() if name != "seconds" and value != {}}
        for record in checkpoint["history"]
    ]
    return {"state": checkpoint["state"], "history": history, "coefficients": checkpoint["coefficients"]}


if __name__ == "__main__":
    main()
