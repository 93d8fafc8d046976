"""`make ui`: MLflow on this project's store, opened on the page that compares the methods."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser

from kedro.config import MissingConfigException, OmegaConfigLoader

from ktpfl_pipeline import hooks, settings, tracking
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.stopping import heed

HOST, PORT = "127.0.0.1", 5000
PATIENCE = 60  # seconds for the server to come up


def main() -> None:
    """Print the links to each experiment's comparison, open that of the one trained last, and serve until stopped."""
    project, env = settings.project_folder(), os.environ.get("KEDRO_ENV")
    loader = OmegaConfigLoader(str(project / settings.CONF_SOURCE), env=env, **settings.CONFIG_LOADER_ARGS)
    try:
        hooks.check_folder(project)
        hooks.configure_tracking(loader, project)
        tracker = tracking.current()
        if not isinstance(tracker, tracking.MlflowTracker):
            sys.exit("Tracking is off (conf/base/tracking.yml): there is nothing to show.")
        port = free_port()
        pages = links(tracker, f"http://{HOST}:{port}/#/experiments/")
    except (InputError, MissingConfigException) as error:
        sys.exit(f"Error: {error}")
    for name, page in pages.items():
        print(f"{name}: {page}")  # noqa: T201
    taken = f" (port {PORT} is in use)" if port != PORT else ""
    print(f"Starting MLflow on port {port}{taken}, a few seconds; stop it with Ctrl-C.", flush=True)  # noqa: T201
    if pages:
        threading.Thread(target=open_when_up, args=(next(iter(pages.values())), port), daemon=True).start()
    serve(tracker.store, port)


def links(tracker: tracking.MlflowTracker, base: str) -> dict[str, str]:
    """Return the page of each experiment, and that of its last comparison, sweep or tuning where there is one."""
    pages = {}
    for name, number in tracker.experiments().items():
        parent = tracker.save_view(number)
        pages[name] = f"{base}{number}{tracking.VIEW}"
        if parent:
            pages[f"{name}, in words"] = f"{base}{number}/runs/{parent}?workflowType=machine_learning"
    return pages


def free_port() -> int:
    """Return the first port, from MLflow's own on, on which no program listens."""
    for port in range(PORT, PORT + 100):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    sys.exit(f"The ports {PORT} to {PORT + 99} are all in use: stop a program that uses one of them.")


def serve(store: str, port: int) -> None:
    """Run MLflow's server on `store` until it is stopped, without the parts that make it slow to start.

    The store travels in the environment: every user of the machine sees a command, and an address may hold a password.
    A line for each request would scroll the links away.
    """
    command = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(port)]
    command += ["--uvicorn-opts", "--log-level=warning --no-access-log"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    quiet |= {"MLFLOW_BACKEND_STORE_URI": store}
    run_until_stopped([*command, "--workers", "1"], {**os.environ, **quiet})


def run_until_stopped(command: list[str], environment: dict[str, str]) -> None:
    """Run a command until it ends, or until Ctrl-C or SIGTERM, which also end the processes that the command started.

    MLflow starts its server in a process of its own, which a signal to the command alone leaves running.
    """
    heed()
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def open_when_up(page: str, port: int) -> None:
    """Open `page` in the browser as soon as the server answers; without a browser the printed link must do."""
    for _ in range(2 * PATIENCE):
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            webbrowser.open(page)
            return


if __name__ == "__main__":
    main()
