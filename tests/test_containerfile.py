"""The Containerfile: what it names is there, and nothing of a user goes along. Makefile: one clone, one environment."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTRUCTIONS = {"FROM", "RUN", "USER", "WORKDIR", "COPY", "VOLUME", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the file and their arguments."""
    lines = (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    parts = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in parts]


def test_the_instructions_are_known_and_begin_with_an_image_of_a_python_that_we_support() -> None:
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    (image,) = (rest for name, rest in found if name == "FROM")
    assert found[0] == ("FROM", image)
    assert re.fullmatch(r"docker\.io/library/python:3\.1[1-9]-slim-\w+", image)


def test_it_runs_targets_of_the_makefile_as_an_ordinary_user() -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    names = [name for name, _ in instructions()]
    (command,) = (json.loads(rest) for name, rest in instructions() if name == "CMD")
    assert command[0] == "make"
    assert command[1] in targets
    used = re.findall(r"\bmake ([a-z-]+)", " ".join(rest for name, rest in instructions() if name == "RUN"))
    assert [name for name in used if name not in ("&&", "setup")] == []
    assert names.index("USER") < names.index("COPY")


def test_data_results_and_settings_of_a_user_stay_outside() -> None:
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert {".git", ".venv", "data/**", "mlflow.db*", "mlruns", "conf/local/**"} <= set(ignored)
    assert {"!data/**/.gitkeep", "!conf/local/.gitkeep"} <= set(ignored), "Kedro wants the folders"


def test_make_leaves_the_environment_of_another_clone_alone(tmp_path: Path) -> None:
    """As where `.venv` is a link to it: an editable installation would point the other clone's commands here."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = subprocess.run(["make", "docs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert re.match(r"\.venv has the package of \S+/ktpfl_pipeline, and stays as it is\.", found.stderr)
    assert sorted(file.name for file in (tmp_path / ".venv").rglob("*")) == ["bin", "python"]
