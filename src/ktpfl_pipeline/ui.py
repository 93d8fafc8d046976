"""The commands `make ui` and `ktpfl ui`: they start MLflow on this project's store and open its comparison page."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser

from ktpfl_pipeline import tracking
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.stopping import heed
from ktpfl_pipeline.settings import project_tracker

HOST, PORT = "127.0.0.1", 5000
CHARTS = "/runs?workflowType=machine_learning&compareRunsMode=CHART"
"""The charts of an experiment's runs, relative to the address of the experiment."""
PATIENCE = 60  # seconds to wait until the server answers


def main() -> None:
    """Print links to the experiments, run MLflow until it is stopped, and open the page of the last trained experiment.

    Exits with an error if tracking is off or the configuration cannot be read.
    """
    try:
        tracker, port = project_tracker(), free_port()
        pages = links(tracker, f"http://{HOST}:{port}/#/experiments/")
    except InputError as error:
        sys.exit(f"Error: {error}")
    for name, page in pages.items():
        print(f"{name}: {page}")  # noqa: T201
    taken = f" (port {PORT} is in use)" if port != PORT else ""
    print(f"Starting MLflow on port {port}{taken}, a few seconds; stop it with Ctrl-C.", flush=True)  # noqa: T201
    if pages:
        threading.Thread(target=open_when_up, args=(next(iter(pages.values())), port), daemon=True).start()
    serve(tracker.store, port)


def links(tracker: tracking.MlflowTracker, base: str) -> dict[str, str]:
    """Return the addresses of MLflow pages by label: each experiment's latest report, if any, and its charts.

    `base` is the start of an address, to which the number of the experiment is appended.
    """
    pages = {}
    for name, number in tracker.experiments().items():
        if report := tracker.latest_report(number):
            pages[f"{name}, latest report"] = f"{base}{number}/runs/{report}?workflowType=machine_learning"
        pages[name] = f"{base}{number}{CHARTS}"
    return pages


def free_port() -> int:
    """Return the first of 100 ports, starting with MLflow's default port, on which no program listens."""
    for port in range(PORT, PORT + 100):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    sys.exit(f"The ports {PORT} to {PORT + 99} are all in use: stop a program that uses one of them.")


def serve(store: str, port: int) -> None:
    """Run MLflow's server on `store` until it is stopped, without the parts that make the start slow.

    The address of the store may contain a password. It is passed in an environment variable, because other users can
    see the command line. Requests are not logged, so that the printed links stay visible.
    """
    command = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(port)]
    command += ["--uvicorn-opts", "--log-level=warning --no-access-log"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    quiet |= {"MLFLOW_BACKEND_STORE_URI": store}
    run_until_stopped([*command, "--workers", "1"], {**os.environ, **quiet})


def run_until_stopped(command: list[str], environment: dict[str, str]) -> None:
    """Run a command until it ends, or until Ctrl-C or SIGTERM. Then end the command and all processes that it started.

    MLflow and kedro-viz start a server in a separate process, which would not receive a signal to the command alone.
    """
    early: list[int] = []  # signals while the command starts, when there is no process to end yet
    signal.signal(signal.SIGTERM, lambda number, frame: early.append(number))
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        heed()
        if not early:
            server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def open_when_up(page: str, port: int) -> None:
    """Open `page` in the browser as soon as the server answers. Without a browser, nothing happens."""
    for _ in range(2 * PATIENCE):
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            webbrowser.open(page)
            return


if __name__ == "__main__":
    run_until_stopped(sys.argv[1:], dict(os.environ)) if sys.argv[1:] else main()
