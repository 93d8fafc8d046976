"""What both ends must have alike."""

import pytest

from ktpfl_flower import alike


@pytest.mark.parametrize(("said", "kind"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("x86_64", "x86_64")])
def test_one_kind_of_processor_has_one_name(monkeypatch, said, kind):
    monkeypatch.setattr(alike.platform, "machine", lambda: said)
    assert alike.versions()["processor"] == kind
