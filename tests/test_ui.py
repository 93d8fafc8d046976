"""`make ui`: links to the pages that compare runs, then MLflow itself, small and quick to start."""

import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from ktpfl_pipeline import tracking, ui

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow

SETTINGS = {"enabled": True, "store": "sqlite:///mlflow.db", "artifacts": "mlruns", "checkpoints": "data/06_models"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_tracker: None) -> Path:
    """A folder with nothing but the settings of tracking; the environment and the tracker come back afterwards."""
    for environment in ("base", "local"):
        (tmp_path / "conf" / environment).mkdir(parents=True)
    (tmp_path / "conf" / "base" / "tracking.yml").write_text(yaml.safe_dump(SETTINGS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {**os.environ})
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that were run, with their environments; no browser is opened."""
    calls: list[Any] = []
    monkeypatch.setattr(ui, "run_until_stopped", lambda command, environment: calls.append((command, environment)))
    monkeypatch.setattr(ui, "open_when_up", lambda *given: calls.append(given))
    return calls


def test_links_and_command(
    project: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking.MlflowTracker, "experiments", lambda self: {"hetero_digits": "3", "hetero_cifar": "1"})
    monkeypatch.setattr(tracking.MlflowTracker, "latest_report", lambda self, number: {"3": "abc", "1": ""}[number])
    monkeypatch.setattr(ui, "free_port", lambda: 5003)
    ui.main()

    page = "http://127.0.0.1:5003/#/experiments/{}/runs?workflowType=machine_learning&compareRunsMode=CHART"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "hetero_digits, latest report: http://127.0.0.1:5003/#/experiments/3/runs/abc?workflowType=machine_learning",
        f"hetero_digits: {page.format(3)}",
        f"hetero_cifar: {page.format(1)}",
    ]
    assert "port 5003 (port 5000 is in use)" in lines[3]
    assert (lines[0].removeprefix("hetero_digits, latest report: "), 5003) in started  # the first one is opened

    (arguments, environment) = next(call for call in started if isinstance(call[0], list))
    assert arguments[:4] == [sys.executable, "-m", "mlflow", "ui"]
    options = dict(zip(arguments[4::2], arguments[5::2], strict=True))
    assert options == {
        "--host": "127.0.0.1",
        "--port": "5003",
        "--uvicorn-opts": "--log-level=warning --no-access-log",
        "--workers": "1",
    }
    assert environment["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{project}/mlflow.db"
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"  # 0.5 GB in 7 s instead of 2.7 GB in 27 s
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_taken_port_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(ui, "PORT", taken)
        assert taken < ui.free_port() < taken + 100


def test_sigterm_ends_the_server_and_the_processes_that_it_started(tmp_path: Path) -> None:
    """The command starts a process that would go on for an hour, and reports it once it runs."""
    file, before = tmp_path / "child", signal.getsignal(signal.SIGTERM)
    started = "import subprocess; child = subprocess.Popen(['sleep', '3600']); "
    started += f"open({str(file)!r}, 'w').write(str(child.pid))"

    def stop() -> None:
        while not (file.is_file() and file.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    try:
        ui.run_until_stopped([sys.executable, "-c", f"{started}; child.wait()"], {**os.environ})
    finally:
        signal.signal(signal.SIGTERM, before)
    child = int(file.read_text())
    for _ in range(1000):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.01)
    pytest.fail("the process that the command started goes on")


def test_both_servers_are_reached_from_this_machine_alone() -> None:
    """Unless told otherwise: `kedro viz run --host=...` and `mlflow ui --host=...` are there for those who mean it."""
    from kedro_viz.constants import DEFAULT_HOST

    assert viz().startswith("--host=127.0.0.1 ")
    for host in (ui.HOST, DEFAULT_HOST):
        assert ipaddress.ip_address(host).is_loopback
    scripts = [file for folder in ("src", "conf") for file in (Path(__file__).parents[1] / folder).rglob("*.*")]
    assert [file for file in scripts if file.is_file() and b"0.0.0.0" in file.read_bytes()] == []


def viz(*given: str) -> str:
    """Return the options of kedro-viz that `make viz` gives."""
    command = ["make", "-n", "-o", ".venv/.ready", "viz", *given]
    shown = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True).stdout
    found = re.search(r"-m ktpfl_pipeline\.ui \S+/kedro viz run (.*)", shown.replace("\\\n", ""))
    assert found
    return " ".join(found[1].split())


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ([], "--pipeline=compare_hetero_digits --env=quick"),
        (["PIPELINE=homo_digits"], "--pipeline=homo_digits"),
        (["PIPELINE=homo_digits", "ENV=test"], "--pipeline=homo_digits --env=test"),
    ],
)
def test_make_viz_shows_the_pipeline_that_is_named(given: list[str], options: str) -> None:
    assert viz(*given) == f"--host=127.0.0.1 --include-hooks {options}"


def test_sigterm_ends_a_given_command_with_its_server(tmp_path: Path) -> None:
    """As kedro-viz starts it: in a process that would not end with the one that started it."""
    script = tmp_path / "serve.sh"
    script.write_text("python3 -m http.server --bind 127.0.0.1 0 & echo $!; wait")
    command = [sys.executable, "-m", "ktpfl_pipeline.ui", "bash", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        server = psutil.Process(int(started.stdout.readline()))
        started.terminate()
        assert started.wait(timeout=60) == 0
    assert psutil.wait_procs([server], timeout=60)[0]


def test_the_page_opens_once_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ui.open_when_up("page", server.getsockname()[1])
    assert opened == ["page"]


def test_an_overlay_in_conf_local_counts(project: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "conf" / "local" / "tracking.yml").write_text("store: http://tracking.example:5000\n")
    monkeypatch.setattr(tracking.MlflowTracker, "experiments", lambda self: {})
    ui.main()
    assert started[0][1]["MLFLOW_BACKEND_STORE_URI"] == "http://tracking.example:5000"


def test_the_project_is_found_from_a_folder_in_it(
    project: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = '[tool.kedro]\npackage_name = "ktpfl_pipeline"\nproject_name = "mine"\nkedro_init_version = "1.0"\n'
    (project / "pyproject.toml").write_text(tool)
    (project / "docs").mkdir()
    monkeypatch.chdir(project / "docs")
    monkeypatch.setattr(tracking.MlflowTracker, "experiments", lambda self: {})
    ui.main()
    assert started[0][1]["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{project}/mlflow.db"


def test_a_password_of_the_store_is_on_no_command_line(
    project: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "conf" / "local" / "tracking.yml").write_text("store: http://anna:s3cret@tracking.example:5000\n")
    monkeypatch.setattr(tracking.MlflowTracker, "experiments", lambda self: {})
    ui.main()
    assert "s3cret" not in str(started[0][0]) + "".join(capsys.readouterr())


def test_without_tracking_there_is_nothing_to_show(project: Path, started: list[Any]) -> None:
    (project / "conf" / "local" / "tracking.yml").write_text("enabled: false\n")
    with pytest.raises(SystemExit, match="Tracking is off"):
        ui.main()
    assert started == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "enabled: yes please\n",
            r"^Error: tracking\.enabled is 'yes please'; it must be true or false",
        ),
        ("store: [\n", r"^Error: .*conf/local/tracking\.yml, line 2: "),
        (
            "store: sqlite:///conf\n",
            r"^Error: MLflow cannot open the store sqlite:///.*/conf \(unable to open database",
        ),
        (None, r"^Error: No files of YAML or JSON format found in .* matching the glob pattern\(s\): \['tracking\*'"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    project: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    monkeypatch.setattr(ui, "serve", pytest.fail)
    if content is None:
        (project / "conf" / "base" / "tracking.yml").unlink()
    else:
        (project / "conf" / "local" / "tracking.yml").write_text(content)
    with pytest.raises(SystemExit, match=message):
        ui.main()


def test_the_environment_of_the_runs_is_that_of_the_page(
    project: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "conf" / "quick").mkdir()
    (project / "conf" / "quick" / "tracking.yml").write_text(yaml.safe_dump({"store": "sqlite:///quick.db"}))
    monkeypatch.setenv("KEDRO_ENV", "quick")
    monkeypatch.setattr(tracking.MlflowTracker, "experiments", lambda self: {})
    ui.main()
    (_, environment) = next(call for call in started if isinstance(call[0], list))
    assert environment["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{project}/quick.db"
