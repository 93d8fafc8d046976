"""`make ui`: MLflow on this project's store, opened on the page that compares runs."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from pathlib import Path

from kedro.config import OmegaConfigLoader

from ktpfl_pipeline import settings, tracking

HOST, PORT = "127.0.0.1", 5000
PATIENCE = 60  # seconds for the server to come up


def main() -> None:
    """Print the link to each experiment's comparison page, open the first in a browser, and serve until stopped."""
    project = Path.cwd()
    loader = OmegaConfigLoader(
        conf_source=str(project / settings.CONF_SOURCE), env="local", **settings.CONFIG_LOADER_ARGS
    )
    tracking.configure(loader["tracking"], project)
    tracker = tracking.current()
    if not isinstance(tracker, tracking.MlflowTracker):
        sys.exit("Tracking is off (conf/base/tracking.yml): there is nothing to show.")
    pages = {
        name: f"http://{HOST}:{PORT}/#/experiments/{number}/runs?workflowType=machine_learning&compareRunsMode=CHART"
        for name, number in sorted(tracker.experiments().items())
    }
    for name, page in pages.items():
        print(f"{name}: {page}")  # noqa: T201
    print("Starting MLflow (a few seconds); stop it with Ctrl-C.", flush=True)  # noqa: T201
    if pages:
        threading.Thread(target=open_when_up, args=(next(iter(pages.values())),), daemon=True).start()
    serve(tracker.store)


def serve(store: str) -> None:
    """Run MLflow's server on `store` until it is stopped, without the parts that make it slow to start."""
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store, "--host", HOST, "--port", str(PORT)]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with contextlib.suppress(KeyboardInterrupt):  # the server has had the same signal
        subprocess.run([*command, "--workers", "1"], env={**os.environ, **quiet}, check=False)


def open_when_up(page: str) -> None:
    """Open `page` in the browser as soon as the server answers; without a browser the printed link must do."""
    for _ in range(2 * PATIENCE):
        try:
            socket.create_connection((HOST, PORT), timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            webbrowser.open(page)
            return


if __name__ == "__main__":
    main()
