"""Run the methods of a server's file: ``python -m ktpfl_flower.run federation.yml here``.

It submits the app to the SuperLink that ``~/.flwr/config.toml`` calls ``here``, shows the log, and ends with the run.
`flwr run` does the same, but its exit status is 0 even if the run fails.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
REPORT = "Report: "
"""The begin of the line with which a run ends, if it does not fail."""


def main(arguments: list[str] | None = None) -> int:
    """Submit the run, and return 0 if it ended with a report, else 1."""
    parser = argparse.ArgumentParser("python -m ktpfl_flower.run", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the server's file")
    parser.add_argument("superlink", help="the name of the SuperLink in ~/.flwr/config.toml")
    asked = parser.parse_args(arguments)
    flwr = Path(sys.executable).with_name("flwr")
    command = [
        flwr,
        "run",
        APP,
        asked.superlink,
        "--stream",
        "--run-config",
        f"federation={json.dumps(str(asked.file.resolve()))}",
    ]
    ended = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as started:
        assert started.stdout is not None
        for line in started.stdout:
            print(line, end="", flush=True)  # noqa: T201
            ended = ended or line.startswith(REPORT)
    return 0 if ended and started.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
