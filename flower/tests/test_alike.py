"""What both ends must have alike."""

import pytest

from ktpfl_flower import alike
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Compute


@pytest.mark.parametrize(("said", "kind"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("x86_64", "x86_64")])
def test_one_kind_of_processor_has_one_name(monkeypatch, said, kind):
    monkeypatch.setattr(alike.platform, "machine", lambda: said)
    assert alike.versions()["processor"] == kind


def test_arithmetic_that_clients_may_lack_is_refused():
    with pytest.raises(InputError, match=r"with real clients, experiment\.compute\.dtype is 'tf32'; it must be"):
        alike.arithmetic(Compute(dtype="tf32"))
