"""Files that are replaced whole, and a folder that one process has for itself."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine import files
from ktpfl_pipeline.core.machine.files import content_of, replacing

HOLDER = """
import sys
from pathlib import Path
from ktpfl_pipeline.core.machine.files import alone
with alone(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.readline()
"""


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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


class TestReplacing:
    """A file takes the place of another whole or not at all, whoever else writes it."""

    def test_two_processes_write_the_same_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As boxes side by side do with the arithmetic that they choose."""
        with replacing(tmp_path / "x.json", summed=True) as first:
            first.write_text("first")
            monkeypatch.setattr(os, "getpid", lambda: 1)  # which runs, always
            with replacing(tmp_path / "x.json", summed=True) as second:
                second.write_text("second")
            monkeypatch.undo()
        assert content_of(tmp_path / "x.json") == b"first"
        assert {each.name for each in tmp_path.iterdir()} == {"x.json", "x.json.sha256"}

    @pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
    def test_what_a_killed_process_left_goes(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        (dead := subprocess.Popen(["true"])).wait()
        make(tmp_path / f"x.json.{files.HOST}-{dead.pid}.partial")
        make(tmp_path / f"x.json.{files.HOST}-1.partial")  # somebody writes it
        make(tmp_path / f"x.json.0123abcd-{dead.pid}.partial")  # somebody on another machine may
        make(tmp_path / f"other.json.{files.HOST}-{dead.pid}.partial")
        with replacing(tmp_path / "x.json", summed=True) as partial:
            partial.write_text("whole")
        left = {f"x.json.{files.HOST}-1.partial", f"x.json.0123abcd-{dead.pid}.partial"}
        left.add(f"other.json.{files.HOST}-{dead.pid}.partial")
        assert {each.name for each in tmp_path.iterdir()} == {"x.json", "x.json.sha256", *left}

    def test_without_its_checksum_nothing_is_replaced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with replacing(tmp_path / "x.json", summed=True) as partial:
            partial.write_text("old")
        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(InputError, match="No space left"), replacing(tmp_path / "x.json", summed=True) as partial:
            partial.write_bytes(b"new")
        assert content_of(tmp_path / "x.json") == b"old"
        assert {each.name for each in tmp_path.iterdir()} == {"x.json", "x.json.sha256"}

    def test_what_was_told_already_is_not_told_as_a_full_disk(self, tmp_path: Path) -> None:
        with (
            pytest.raises(InputError, match=r"^samples\.npz cannot be read$"),
            replacing(tmp_path / "x.json", summed=True),
        ):
            try:
                (tmp_path / "samples.npz").read_bytes()
            except OSError as error:
                raise InputError("samples.npz cannot be read") from error
