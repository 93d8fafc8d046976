"""Files that are replaced whole, and a folder that one process has for itself."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
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


def folder(place: Path, content: str) -> None:
    place.mkdir()
    (place / "page.html").write_text(content)


def save_often(place: Path) -> None:
    for _ in range(150):
        with replacing(place) as partial:
            folder(partial, "new")


def killed_at(step: str, place: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, replacing(place) as partial:
        folder(partial, "new")
        patch.setattr(Path, step, lambda self, target: os.kill(os.getpid(), signal.SIGKILL))


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

    def test_two_processes_write_the_same_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second puts its folder in the place after the first has moved the old one away, three times."""
        place, moves = tmp_path / "report", iter("123")
        folder(place, "old")
        replace = Path.replace

        def slow(self: Path, target: Path) -> Path:
            if another := next(moves, ""):
                folder(target, another)
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", slow)
        with replacing(place) as partial:
            folder(partial, "new")
        assert (place / "page.html").read_text() == "new"
        assert [each.name for each in tmp_path.iterdir()] == ["report"]

    def test_three_hundred_saves_of_one_folder_by_two_processes(self, tmp_path: Path) -> None:
        children = [forked.start(save_often, tmp_path / "report") for _ in range(2)]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
        assert [each.name for each in tmp_path.iterdir()] == ["report"]

    @pytest.mark.parametrize("step", ["rename", "replace"])
    def test_a_kill_while_a_folder_is_replaced_leaves_nothing(self, step: str, tmp_path: Path) -> None:
        """Before the old folder is moved away, or before the new one is in its place; then a new save fails."""
        folder(tmp_path / "report", "old")
        child = forked.start(killed_at, step, tmp_path / "report")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert len([*tmp_path.iterdir()]) == 2
        with pytest.raises(ZeroDivisionError), replacing(tmp_path / "report"):
            raise ZeroDivisionError
        assert [each.name for each in tmp_path.iterdir()] == ["report"]
        assert (tmp_path / "report" / "page.html").read_text() == "old"

    def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder(tmp_path / "report", "old")
        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(InputError, match="No space left"), replacing(tmp_path / "report") as partial:
            folder(partial, "new")
        assert (tmp_path / "report" / "page.html").read_text() == "old"
        assert [each.name for each in tmp_path.iterdir()] == ["report"]

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
