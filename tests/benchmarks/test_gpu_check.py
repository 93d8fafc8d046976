"""The check for whoever has a GPU, as far as a machine without one can run it."""

import time
from pathlib import Path

import gpu_check
import pytest
import torch


@pytest.fixture
def two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "WAYS", {name: gpu_check.WAYS[name] for name in ("float32", "bfloat16")})


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main(["--output", str(tmp_path / "report.md")]) == 2
    assert "finds no GPU on this machine, so nothing was checked: run make gpu-check where" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("two_ways")
def test_a_report_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "a-host")
    assert gpu_check.main(["--device", "cpu", "--quick", "--output", str(tmp_path / "report.md")]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| lenet")]
    assert [row[1] for row in rows] == ["float32", "bfloat16"]
    assert all(float(row[2]) > 0 for row in rows)
    assert "a-host" not in text
    assert str(Path.home()) not in text


@pytest.mark.usefixtures("two_ways")
def test_nothing_is_begun_after_the_time() -> None:
    rows = list(gpu_check.speeds("cpu", quick=True, end=time.monotonic() - 1))
    assert [row.split(" | ")[2] for row in rows] == ["not begun within the time"] * 2


def test_what_fails_is_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "ways", lambda device: {"odd": {"dtype": "tf32"}})
    (row,) = gpu_check.speeds("cpu", quick=True, end=time.monotonic() + 60)
    assert row.startswith("| lenet | odd | InputError: compute.dtype is tf32, which needs a GPU")


def test_a_cpu_has_no_tf32() -> None:
    names = list(gpu_check.ways("cpu"))
    assert "bfloat16, channels last" in names
    assert not [name for name in names if "tf32" in name]
    assert len(gpu_check.ways("cuda")) == len(gpu_check.WAYS)
