"""Faults of real clients and their server: SIGKILL, and pauses longer than the deadline, over the loopback interface.

Run in the environment of `make flower`: ``.venv-flower/bin/python benchmarks/real_clients_killed.py``. Each fault has a
separate run of KT-pFL with three clients. The result is compared with a run in a single process without the clients
that dropped out. The script takes several minutes.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "flower" / "tests" / "support"))
import loopback
from client_faults import differences
from real_clients import deal_out

HIT, SECONDS = 1, 900


class Stage:
    """A federation of processes in a folder, which can be killed one by one."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """Start a SuperLink and three clients."""
        self.folder = folder
        self.files = deal_out(folder, "kt_pfl", ("mlp",) * 3, 3, deadline=60)
        self.stack = stack
        stack.enter_context(loopback.federation(folder, []))
        config = tomllib.loads((folder / "flwr" / "config.toml").read_text())
        self.address = config["superlink"]["here"]["address"]
        self.clients = {n: self.join(n) for n in range(3)}

    def join(self, n: int) -> Any:
        """Start a client."""
        command = [*loopback.JOIN, self.files[n], "--insecure", "--superlink", self.address]
        return self.stack.enter_context(loopback.process(self.folder, self.files[n].stem, command))

    def ended(self, rounds: int) -> None:
        """Wait until this number of rounds has ended."""
        file = self.folder / "mlflow.db"
        query = "select count(distinct step) from metrics where key = 'accuracy/after_transfer'"

        def ended() -> bool:
            if not file.exists():
                return False
            with contextlib.closing(sqlite3.connect(file)) as store, contextlib.suppress(sqlite3.OperationalError):
                return int(store.execute(query).fetchone()[0]) >= rounds
            return False

        loopback.wait_for(ended, SECONDS)

    def kill_client(self, rounds: int, again: bool) -> None:
        """Kill a client and its SuperNode after this number of rounds, and start it again if `again` is true."""
        self.ended(rounds)
        signal_all(self.clients[HIT].pid, signal.SIGKILL)
        if again:
            self.clients[HIT] = self.join(HIT)

    def hang_client(self) -> None:
        """Stop a client for longer than the deadline."""
        self.ended(1)
        signal_all(self.clients[HIT].pid, signal.SIGSTOP)
        threading.Event().wait(120)
        signal_all(self.clients[HIT].pid, signal.SIGCONT)

    def kill_server(self) -> None:
        """Kill the process that runs the rounds."""
        self.ended(1)
        for pid in descendants(os.getpid()):
            if b"serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"-", b""):
                os.kill(pid, signal.SIGKILL)


FAULTS: dict[str, tuple[Callable[[Stage], None], int]] = {
    "client killed in round 2, and started again": (lambda stage: stage.kill_client(1, True), 1),
    "client killed in round 2, for good": (lambda stage: stage.kill_client(1, False), 1),
    "client stopped for longer than the deadline": (Stage.hang_client, 1),
    "server killed in round 2, and started again": (Stage.kill_server, 2),
}
"""The faults: what is done during a run, and how many times `flwr run` is called."""


def main() -> None:
    """Print a table."""
    print("| fault | out of a round | differs from one process | said |")
    print("| --- | --- | --- | --- |")
    wanted = sys.argv[1:] or list(FAULTS)
    for name in wanted:
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            print(row(name, Stage(Path(place), stack)), flush=True)


def row(name: str, stage: Stage) -> str:
    """Return the table's row of a fault."""
    act, runs = FAULTS[name]
    thread = threading.Thread(target=act, args=[stage])
    thread.start()
    log = "".join(loopback.run(stage.folder, "here", SECONDS) for _ in range(runs))
    thread.join()
    try:
        done = loopback.finished(stage.folder, "kt_pfl")
    except FileNotFoundError:
        return f"| {name} | | it did not end | {log[-3000:]} |"
    out = [f"{n} of {r.round}: {r.reasons[str(n)]}" for r in done.history for n in {*r.absent, *r.late}]
    said = [line.strip() for line in log.splitlines() if "Client" in line]
    return " | ".join(["", name, "; ".join(out), ", ".join(differences(stage.folder, done)) or "in nothing", *said, ""])


def signal_all(pid: int, number: int) -> None:
    """Send a signal to a process and all of its descendants."""
    for one in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(one for child in children for one in descendants(child))]


if __name__ == "__main__":
    main()
