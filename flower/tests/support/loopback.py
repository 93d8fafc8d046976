"""A federation of processes on this machine with Flower: a SuperLink, clients with their SuperNodes, and a run."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
JOIN = [BIN / "python", "-m", "ktpfl_flower.join"]


@contextmanager
def federation(
    folder: Path,
    files: list[Path],
    secure: bool = False,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a SuperLink, which `flwr run` calls ``here``, and clients, and yield all of these processes.

    Args:
        folder: the folder of logs, keys and Flower's own files.
        files: the files of the clients.
        secure: whether connections use TLS and clients authenticate with keys.
    """
    port, ca = free_port(), folder / "certificates" / "ca.crt"
    known = f'root-certificates = "{ca}"' if secure else "insecure = true"
    (folder / "flwr").mkdir(exist_ok=True)
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n{known}\n'
    )
    with ExitStack() as stack:
        link = [BIN / "python", "-m", "ktpfl_flower.superlink", "--host", "127.0.0.1", "--port", str(port)]
        link += certified(ca.parent) if secure else ["--insecure"]
        started = [stack.enter_context(process(folder, "superlink", link))]
        wait_for(lambda: listens(port), 600)
        with ThreadPoolExecutor() as pool:  # each start takes seconds
            keys = list(pool.map(registered, [folder] * len(files), [file.stem for file in files])) if secure else []
        for place, file in enumerate(files):
            options: list[object] = ["--superlink", f"127.0.0.1:{port}"]
            if secure:
                options += ["--root-certificates", ca, "--auth-supernode-private-key", keys[place]]
            else:
                options += ["--insecure"]
            started.append(stack.enter_context(process(folder, file.stem, [*JOIN, file, *options])))
        yield started


def certified(folder: Path) -> list[object]:
    """Make certificates in a folder, and return the SuperLink's options for them."""
    subprocess.run([ROOT / "flower" / "certificates.sh", folder, "127.0.0.1"], check=True, capture_output=True)
    files = {"certfile": "superlink.crt", "keyfile": "superlink.key", "ca-certfile": "ca.crt"}
    options = [part for name, file in files.items() for part in (f"--ssl-{name}", folder / file)]
    return [*options, "--enable-supernode-auth"]


def registered(folder: Path, name: str) -> Path:
    """Return the file of a client's private key, after registering its public key with the SuperLink."""
    key = made_key(folder, name)
    command = [BIN / "flwr", "supernode", "register", f"{key}.pub", "here"]
    subprocess.run(command, env=environment(folder), check=True, capture_output=True)
    return key


def made_key(folder: Path, name: str) -> Path:
    """Return the file of a new private key, next to the file of its public key."""
    key = folder / f"{name}-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
    return key


def run(folder: Path, link: str, seconds: float, status: int = 0) -> str:
    """Run the folder's federation, check the exit status, and return the log."""
    command = [BIN / "python", "-m", "ktpfl_flower.run", folder / "federation.yml", link]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
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
    own = {"FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    found = {**os.environ, **own, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, Flower's process of each message would compile Flower again
    return found


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
