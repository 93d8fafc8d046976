"""The overview of finished comparisons, run as a user does."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click import ClickException
from project_copy import Project

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.pipelines.datasets import ComparisonsDataset


def test_it_gathers_what_comparisons_left(untracked: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    three = ("kt_pfl", "sim_pfl", "local")  # are enough
    monkeypatch.setattr(pipeline_registry, "compared", lambda one_architecture: three)
    reports = untracked.folder / "data" / "08_reporting"
    untracked.run("compare_hetero_digits", seeds=[0], rounds=1)
    stand_in(reports / "compare_hetero_digits", "two_labels", "all_labels")
    untracked.run("overview")
    folder = reports / "overview"
    figures = [f"figures/{name}.svg" for name in ("accuracy", "communication")]
    assert {"report.html", "report.md", "tables/accuracy.tex", "table.txt", *figures} <= {
        file.relative_to(folder).as_posix() for file in folder.rglob("*")
    }
    header = (folder / "report.md").read_text().split("## Accuracy")[1].split("|---")[0]
    assert "digits, all labels (%)" in header
    assert "digits, two labels (%)" in header
    page = (folder / "report.html").read_text()
    assert all((folder / link).resolve().is_file() for link in re.findall(r'href="(\.\./[^"]+)"', page))
    untracked.run("overview")  # it does not read itself
    assert (folder / "report.html").read_text() == page


def stand_in(reports: Path, old: str, new: str) -> None:
    """Copy the one report to where that of another partition would be; training all methods again takes a minute."""
    (made,) = reports.iterdir()
    copy = reports / made.name.replace(old, new)
    shutil.copytree(made, copy)
    content = json.loads((copy / "comparison.json").read_text())
    assert content["settings"]["partition"]["scheme"] == old
    content["settings"]["partition"]["scheme"] = new
    (copy / "comparison.json").write_text(json.dumps(content))


def test_without_comparisons_it_says_what_to_run(untracked: Project) -> None:
    with pytest.raises(ClickException, match=r"^There is no finished comparison to show; run one first"):
        untracked.run("overview")
    assert untracked.written() == []


class TestComparisonsDataset:
    def test_any_depth_and_nothing_half_written(self, tmp_path: Path) -> None:
        for place in ("a", "b/two_labels", "b/rho=0.5", "b/all_labels.partial"):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / "comparison.json").write_text(json.dumps({"name": place}))
            (tmp_path / place / "other.json").write_text("{}")
        loaded = ComparisonsDataset(filepath=str(tmp_path)).load()
        assert loaded == {place: {"name": place} for place in ("a", "b/two_labels", "b/rho=0.5")}

    def test_no_folder(self, tmp_path: Path) -> None:
        assert ComparisonsDataset(filepath=str(tmp_path / "none")).load() == {}

    def test_it_is_an_input(self, tmp_path: Path) -> None:
        with pytest.raises(Exception, match="is an input"):
            ComparisonsDataset(filepath=str(tmp_path)).save({})
