"""Run the methods of a server's file: ``python -m ktpfl_flower.run federation.yml here``.

It submits the app to the SuperLink that ``~/.flwr/config.toml`` calls ``here``, shows the log, and ends with the run.
`flwr run` does the same, but its exit status is 0 even if the run fails. If this command is ended first, the run
continues at the SuperLink.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from ktpfl_flower.watched import ended_by_signals, watched

APP = Path(__file__).parents[2] / "app"
REPORT = "Report: "
"""The begin of the line with which a run ends, if it does not fail."""
STARTED = re.compile(r"Successfully started run (\d+)")
"""What Flower says when a run starts, with the run's number."""


def main(arguments: list[str] | None = None) -> int:
    """Submit the run, and return 0 if it ended with a report, else 1."""
    parser = argparse.ArgumentParser("python -m ktpfl_flower.run", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the server's file")
    parser.add_argument("superlink", help="the name of the SuperLink in ~/.flwr/config.toml")
    asked = parser.parse_args(arguments)
    config = f"federation={json.dumps(str(asked.file.resolve()))}"
    flwr = str(Path(sys.executable).with_name("flwr"))
    ended = False
    with watched([flwr, "run", str(APP), asked.superlink, "--stream", "--run-config", config], subprocess.PIPE) as run:
        assert run.stdout is not None
        for line in (each.decode(errors="replace") for each in run.stdout):
            print(line, end="", flush=True)  # noqa: T201
            ended = ended or line.startswith(REPORT)
            if found := STARTED.search(line):
                stop = f"{flwr} stop {found[1]} {asked.superlink}"
                print(f"If this command is ended, the run continues. To end the run: {stop}", flush=True)  # noqa: T201
        status = run.wait()
    return 0 if ended and status == 0 else 1


if __name__ == "__main__":
    ended_by_signals()
    sys.exit(main())
