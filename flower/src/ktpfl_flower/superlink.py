"""Start Flower's SuperLink, which passes messages on: ``python -m ktpfl_flower.superlink --insecure --port 8000``.

All options go to `flower-superlink`. The apps that the SuperLink starts have enough time on a busy machine (`watched`),
and no packages are installed at run time.
"""

import os
import sys
from pathlib import Path

from ktpfl_flower.watched import ended_by_signals, patient, watched

ALWAYS = "--disable-runtime-dependency-installation"


def main(arguments: list[str] | None = None) -> int:
    """Run a SuperLink until it ends or this process does, and return its exit status."""
    options = sys.argv[1:] if arguments is None else arguments
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # of Flower's other programs
    with watched(patient("flower-superlink", *options, ALWAYS), env={**os.environ, "PATH": path}) as started:
        return started.wait()


if __name__ == "__main__":
    ended_by_signals()
    sys.exit(main())
