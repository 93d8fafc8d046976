"""Where, when and by what command something was made, for whoever wants to make it again."""

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
    """How a result was made, for the report and the tracker."""

    date: str  # local time with its zone, ISO 8601, to the second
    command: str
    commit: str  # short hash of this package in git, with ``+changes`` where files differ; empty without a repository
    user: str  # empty if the system does not know it
    machine: str  # processor, cores, operating system
    versions: str  # of Python and torch

    def told(self) -> dict[str, str]:
        """Return what a report says of it."""
        told = {"Made": self.date, "Command": self.command, "Commit": self.commit}
        return {**told, "Machine": f"{self.machine}; {self.versions}"}


def here_and_now() -> Provenance:
    """Return the provenance of what this process makes now."""
    return Provenance(datetime.now().astimezone().isoformat(" ", "seconds"), command(sys.argv), *_here())


def command(arguments: list[str]) -> str:
    """Return the command that a process was started with, as one types it: without the path of the interpreter.

    Passwords in addresses are masked.
    """
    program, *rest = arguments
    path = Path(program)
    started = f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
    return masked(" ".join([started, shlex.join(rest)]).strip())


@cache
def _here() -> tuple[str, str, str, str]:
    """Return the commit, the user, the machine and the versions, which stay the same while a process runs."""
    import torch

    from ktpfl_pipeline.core.machine.resources import cores

    ours = _git("ls-files", "--error-unmatch", "__init__.py")  # and not a repository around an installed package
    commit = _git("rev-parse", "--short=10", "HEAD") if ours else ""
    changes = "+changes" if commit and _git("status", "--porcelain", "--", str(PACKAGE)) else ""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = ""
    machine = f"{processor()}, {cores()} cores, {platform.system()} {platform.machine()}"
    return commit + changes, user, machine, f"Python {platform.python_version()}, torch {torch.__version__}"


def _git(*arguments: str) -> str:
    """Return what git says of the package's source; nothing where there is no git or no repository."""
    try:
        run = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def processor() -> str:
    """Return the processor's name: Linux has it in a file, other systems through `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
