"""What importing the package does."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

import ktpfl_pipeline

NAME = "THP_MEM_ALLOC_ENABLE"


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("0", "0")])
def test_large_tensors_lie_on_huge_pages_unless_the_user_says_otherwise(
    given: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, given or "")  # so that it is put back
    if given is None:
        monkeypatch.delenv(NAME)
    importlib.reload(ktpfl_pipeline)
    assert os.environ[NAME] == found


@pytest.mark.skipif(sys.platform != "linux", reason="torch looks for huge pages on Linux alone")
def test_torch_reads_that_name() -> None:
    assert NAME.encode() in (Path(torch.__file__).parent / "lib" / "libc10.so").read_bytes()
