"""`make ui`: MLflow on this project's store, opened on the page that compares runs."""

import os
import sys
from pathlib import Path

from kedro.config import OmegaConfigLoader

from ktpfl_pipeline import settings, tracking

HOST, PORT = "127.0.0.1", "5000"


def main() -> None:
    """Print the link to each experiment's comparison page and become the MLflow server."""
    project = Path.cwd()
    loader = OmegaConfigLoader(conf_source=str(project / "conf"), env="local", **settings.CONFIG_LOADER_ARGS)
    tracking.configure(loader["tracking"], project)
    tracker = tracking.current()
    if not isinstance(tracker, tracking.MlflowTracker):
        sys.exit("Tracking is off (conf/base/tracking.yml): there is nothing to show.")
    for name, number in sorted(tracker.experiments().items()):
        page = f"http://{HOST}:{PORT}/#/experiments/{number}/runs?workflowType=machine_learning&compareRunsMode=CHART"
        print(f"{name}: {page}")  # noqa: T201
    print("Starting MLflow (a few seconds); stop it with Ctrl-C.", flush=True)  # noqa: T201
    os.environ |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        tracker.store,
        "--host",
        HOST,
        "--port",
        PORT,
    ]
    os.execv(sys.executable, [*command, "--workers", "1"])


if __name__ == "__main__":
    main()
