"""The provenance of results: date, command, commit, user and machine."""

import getpass
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from ktpfl_pipeline.core.errors import masked
from ktpfl_pipeline.core.machine.files import PACKAGE


@dataclass(frozen=True)
class Provenance:
    """The provenance of a result, for the report and the tracker."""

    date: str  # local time with time zone, ISO 8601, in seconds
    command: str
    commit: str  # short git hash of this package, with ``+changes`` if files differ; empty without git
    user: str  # empty if the system does not know it
    machine: str  # processor, cores, operating system
    versions: str  # of Python and torch

    def by_title(self) -> dict[str, str]:
        machine = f"{self.machine}; {self.versions}"
        return {"Made": self.date, "Command": self.command, "Commit": self.commit, "Machine": machine}


def here_and_now() -> Provenance:
    return Provenance(datetime.now().astimezone().isoformat(" ", "seconds"), command(sys.argv), *_here())


def command(arguments: list[str]) -> str:
    """Return a process's command line in the form in which a user types it, from the arguments in ``sys.argv``.

    Passwords in addresses are masked.
    """
    program, *rest = arguments
    path = Path(program)
    started = f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
    return masked(" ".join([started, shlex.join(rest)]).strip())


@cache
def _here() -> tuple[str, str, str, str]:
    """Return the commit, the user, the machine and the versions, which are constant during a process."""
    import torch

    from ktpfl_pipeline.core.machine.resources import cores, processor

    ours = _git("ls-files", "--error-unmatch", "__init__.py")  # excludes a repository around an installed package
    commit = _git("rev-parse", "--short=10", "HEAD") if ours else ""
    changes = "+changes" if commit and _git("status", "--porcelain", "--", str(PACKAGE)) else ""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = ""
    machine = f"{processor()}, {cores()} cores, {platform.system()} {platform.machine()}"
    return commit + changes, user, machine, f"Python {platform.python_version()}, torch {torch.__version__}"


def _git(*arguments: str) -> str:
    """Return the output of a git command in the package's folder; empty if git fails."""
    try:
        run = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
