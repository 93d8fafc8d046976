"""The installed package runs in a folder that holds a configuration and nothing else of the project."""

import contextlib
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from project_copy import EXPERIMENT, ROOT, Project

from ktpfl_pipeline.__main__ import CONF, find_packages_in, main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = Project.create(tmp_path / "anywhere").folder
    (place / "pyproject.toml").unlink()
    shutil.rmtree(place / "src")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    return place


NETS = """
import math, torch

def wide(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))
"""


@pytest.mark.parametrize("place", ["beside_conf", "src/in_src"])
def test_packages_of_the_users_own_lie_in_the_folder_or_in_its_src(folder: Path, place: str) -> None:
    (folder / place).mkdir(parents=True)
    (folder / place / "nets.py").write_text(NETS)
    settings = f"{EXPERIMENT}.architectures={Path(place).name}.nets:wide"
    asked = ["--env=test", f"--pipelines={EXPERIMENT}", f"--to-outputs={EXPERIMENT}/partition", f"--params={settings}"]
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 0
    found = str((folder / place).parent)
    assert found in sys.path[:2]
    assert found in os.environ["PYTHONPATH"].split(os.pathsep), "for actors of Ray"
    assert os.environ["PYTHONPATH"].split(os.pathsep)[-1] == "somewhere"


def test_another_copy_of_this_package_is_passed_over(folder: Path) -> None:
    (folder / "src" / "ktpfl_pipeline").mkdir(parents=True)
    find_packages_in(folder)
    assert str(folder) in sys.path
    assert str(folder / "src") not in sys.path
    find_packages_in(ROOT)
    assert sys.path.count(str(ROOT / "src")) == 1


def test_it_runs_the_pipelines_that_are_named(folder: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--env=test", f"--pipelines={EXPERIMENT}", f"--to-outputs={EXPERIMENT}/partition"])
    assert ended.value.code == 0
    assert (folder / "data" / "03_primary" / EXPERIMENT / "partition.csv").is_file()


def test_wrong_settings_are_an_error_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--env=test", f"--pipelines={EXPERIMENT}", f"--params={EXPERIMENT}.clients=0"])
    assert ended.value.code == 1
    assert f"{EXPERIMENT}.clients is 0; " in capsys.readouterr().err


def test_the_wheel_has_all_files_of_the_package() -> None:
    """Those of folders without ``__init__.py``, and those that no pattern names, would be left out."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = data["*"]
    package = ROOT / "src" / "ktpfl_pipeline"
    files = [file for file in package.rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    assert [file for file in files if not (file.parent / "__init__.py").exists()] == []
    assert [file for file in files if not any(map(file.match, ["*.py", *patterns]))] == []
    brought = {file for pattern in data["ktpfl_pipeline"] for file in package.glob(pattern)}
    assert {file for file in CONF.glob("**/*") if file.is_file() and file.suffix} <= brought
    assert (CONF / "local" / ".gitkeep") in brought, "Kedro wants the folder"


def test_outside_a_project_is_the_configuration_that_it_brings(tmp_path: Path) -> None:
    for place, source in ((tmp_path, CONF), (ROOT / "docs", Path("conf"))):
        with contextlib.chdir(place):
            assert Path(runpy.run_module("ktpfl_pipeline.settings")["CONF_SOURCE"]) == source


def test_a_configuration_to_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["conf"])
    assert (tmp_path / "conf" / "base" / "catalog.yml").is_file()
    with pytest.raises(SystemExit, match="conf/ is there already"):
        main(["conf"])


@pytest.mark.parametrize("command", ["conf", "ui"])
def test_a_command_without_options_explains_itself(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: ktpfl {command}\n")
    with pytest.raises(SystemExit, match=rf"`ktpfl {command}` takes no options \(found --port 3\)"):
        main([command, "--port", "3"])
    assert not list(tmp_path.iterdir())


LOGGING = {
    "no YAML": "version: [1",
    "a factory": "{version: 1, handlers: {x: {(): os.system}}}",
    "a handler of an unknown kind": "{version: 1, handlers: {x: {class: logging.NoSuchHandler}}}",
    "a handler of another package": "{version: 1, handlers: {x: {class: os.path.join}}}",
    "no mapping": "just words",
}


@pytest.mark.parametrize("what", LOGGING)
def test_a_broken_configuration_of_logging_is_one_sentence(what: str, tmp_path: Path) -> None:
    """Kedro reads it as soon as it is imported; hence the process of its own."""
    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "conf" / "logging.yml").write_text(LOGGING[what])
    command = [sys.executable, "-m", "ktpfl_pipeline", "--help"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: conf/logging.yml cannot be used as the configuration of logging (")
    assert "Traceback" not in ended.stderr
