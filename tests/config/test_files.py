"""Configuration files that stand for more than anyone writes; what else cannot be read is in `test_hooks.py`."""

from pathlib import Path

import pytest

from ktpfl_pipeline.config import files
from ktpfl_pipeline.core.errors import InputError


def check(folder: Path, text: str) -> None:
    (folder / "parameters.yml").write_text(text)
    files.check(folder)


def test_an_alias_counts_as_what_it_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three for the list with its two values, wherever it stands; one for each name and section: eleven."""
    text = "a: &a [1, 2]\nb: {c: *a}\n"
    monkeypatch.setattr(files, "MAX_VALUES", 11)
    check(tmp_path, text)
    monkeypatch.setattr(files, "MAX_VALUES", 10)
    with pytest.raises(InputError, match=r"parameters\.yml stands for more than 10 values"):
        check(tmp_path, text)


def test_values_within_each_other(tmp_path: Path) -> None:
    check(tmp_path, "a: " + "[" * (files.MAX_DEPTH - 5) + "]" * (files.MAX_DEPTH - 5))
    with pytest.raises(InputError, match=f"or more than {files.MAX_DEPTH} within each other"):
        check(tmp_path, "a: " + "[" * files.MAX_DEPTH + "]" * files.MAX_DEPTH)


def test_what_kedro_will_refuse_is_left_to_it(tmp_path: Path) -> None:
    """It names the line."""
    check(tmp_path, "a: [1")
    (tmp_path / "parameters.yml").write_bytes(b"\xff\xfe\x00")
    files.check(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(InputError, match=r"parameters\.yml cannot be read \(Permission denied\)"):
        check(tmp_path, "a: 1")
