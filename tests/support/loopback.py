"""A federation of processes on this machine by Flower: a SuperLink, a client process each with its SuperNode, a run."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@contextmanager
def federation(folder: Path, files: list[Path]) -> Iterator[str]:
    """Start a SuperLink and the clients of some files, and yield what `flwr run` calls the SuperLink."""
    port = free_port()
    (folder / "flwr").mkdir(exist_ok=True)
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    with ExitStack() as stack:
        link = [BIN / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(process(folder, "superlink", [*link, "--disable-runtime-dependency-installation"]))
        wait_for(lambda: listens(port), 60)
        for file in files:
            join = [BIN / "python", "-m", "ktpfl_pipeline.flower.join", file]
            stack.enter_context(process(folder, file.stem, [*join, "--insecure", "--superlink", f"127.0.0.1:{port}"]))
        yield "here"


def run(folder: Path, link: str, seconds: float) -> str:
    """Run the app with the folder's federation, and return its log."""
    asked = f'federation="{folder / "federation.yml"}" patience=300.0'
    command = [BIN / "flwr", "run", ROOT / "flower", link, "--stream", "--run-config", asked]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=seconds, check=False
    )
    return done.stdout + done.stderr


@contextmanager
def process(folder: Path, name: str, command: list[object]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=environment(folder), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def environment(folder: Path) -> dict[str, str]:
    own = {"FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": str(ROOT / "src")}
    return {**os.environ, **own, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def wait_for(there: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)
