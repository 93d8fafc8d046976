"""What importing the package does."""

import importlib
import os

import pytest

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
