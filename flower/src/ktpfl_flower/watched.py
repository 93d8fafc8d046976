"""Commands of Flower that end with the process that starts them, and that work on a busy machine.

``python -m ktpfl_flower.watched flower-superlink ...`` runs a command of Flower with more time for an app that it
starts. Flower takes a started app for lost if it sends no sign of life within 30 s. Loading Flower alone takes 2 to 4 s
of CPU time, so on a machine under load Flower would start one app after another, and none would begin. The time is a
constant of Flower, which no option changes.
"""

import importlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points

SECONDS = 180
"""Seconds in which a started app must send a sign of life; half of the time after which a running one is lost."""
STATES = ("flwr.supercore.corestate.in_memory_corestate", "flwr.supercore.corestate.sql_corestate")
"""The modules of Flower that have the time as a constant."""
WATCH = """
exec 3<&0
"$@" </dev/null & command=$!
(read -r _ <&3; kill $command; sleep 10; kill -9 $command) & watcher=$!
wait $command; status=$?
kill $watcher 2>/dev/null
exit $status
"""
"""A shell's program: run a command until it ends, or the input does; then end it, with SIGKILL after ten seconds."""


def watched(
    command: list[str], stdout: int | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a command that ends when this process does, whatever ends it, including SIGKILL.

    A shell waits for the end of a pipe that only this process holds open.
    """
    watching = ["sh", "-c", WATCH, "sh", *command]
    # Ctrl-C ends only this process
    return subprocess.Popen(watching, env=env, stdin=subprocess.PIPE, stdout=stdout, start_new_session=True)


def ended_by_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process by SystemExit, so that its ``with`` blocks end what they started."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: sys.exit(128 + number))


def patient(name: str, *options: str) -> list[str]:
    """Return the command that runs a command of Flower with more time for the apps that it starts."""
    return [sys.executable, "-m", "ktpfl_flower.watched", name, *options]


def main() -> None:
    """Run a command of Flower in this process."""
    name = sys.argv[1]
    for place in STATES:
        vars(importlib.import_module(place))["HEARTBEAT_DEFAULT_INTERVAL"] = SECONDS
    sys.argv = sys.argv[1:]
    (found,) = entry_points(group="console_scripts", name=name)
    found.load()()


if __name__ == "__main__":
    main()
