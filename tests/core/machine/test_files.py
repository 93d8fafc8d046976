"""A folder that one process has for itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from ktpfl_pipeline.core.machine import files

HOLDER = """
import sys
from pathlib import Path
from ktpfl_pipeline.core.machine.files import alone
with alone(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.readline()
"""


class Waited(Exception):
    """Somebody has the folder."""


def wait() -> None:
    raise Waited


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout and other.stdin
        assert other.stdout.readline() == "mine\n"
        told: list[int | None] = []

        def waiting() -> None:
            told.append(other.poll())
            other.kill()
            other.wait()  # what it had is free now

        with files.alone(tmp_path / "run", waiting):
            assert told == [None]
            with pytest.raises(Waited), files.alone(tmp_path / "run", wait):  # it was waited for, and had
                pass
    with files.alone(tmp_path / "run", lambda: pytest.fail("nobody has it any more")):
        pass


def test_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "flock", None)
    with files.alone(tmp_path / "run"), files.alone(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


def test_a_folder_that_cannot_be_made_keeps_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with files.alone(tmp_path / "file" / "run"):
        assert not (tmp_path / "file").is_dir()
