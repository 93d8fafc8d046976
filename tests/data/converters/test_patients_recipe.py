"""The settings of docs/how_to/own_data.md learn on a table of patients with a rare diagnosis."""

import re
from pathlib import Path
from typing import Any

import patients
import pytest
import yaml
from click.testing import CliRunner
from project_copy import ROOT

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.inheritance import inherited
from ktpfl_pipeline.convert import convert
from ktpfl_pipeline.in_memory import federation, run

CLINICS, PATIENTS = 4, 700


def recipe() -> dict[str, Any]:
    """Return the section `patients` of the page."""
    page = (ROOT / "docs" / "how_to" / "own_data.md").read_text("utf-8")
    (section,) = re.findall(r"```yaml\n(# conf/local/parameters.yml\npatients:.*?)```", page, re.DOTALL)
    return dict(yaml.safe_load(section)["patients"])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write and convert a small table."""
    patients.write(tmp_path / "patients.csv", PATIENTS, CLINICS)
    out = tmp_path / "patients.npz"
    given = ["csv", str(tmp_path / "patients.csv"), str(out), "--label", "diagnosis", "--client", "hospital"]
    assert CliRunner().invoke(convert, [*given, "--drop", "patient_id"]).exit_code == 0
    return out


def test_the_section_is_an_experiment() -> None:
    files = (ROOT / "conf" / "base").glob("parameters*.yml")
    sections = {name: section for file in files for name, section in yaml.safe_load(file.read_text("utf-8")).items()}
    made = parsing.parse(
        "patients", inherited({**sections, "patients": {"like": "hetero_digits", **recipe()}})["patients"]
    )
    assert (made.headline, made.training.optimizer, made.training.class_weights) == ("auc", "adam", "balanced")


def test_every_method_learns(table: Path) -> None:
    """At chance AUC is 50 %, and balanced accuracy as well."""
    asked = recipe()
    shared = {name: asked[name] for name in ("public", "training", "distillation", "image")}
    fed = federation(
        f"npz:{table}",
        asked["clients"],
        asked["architectures"],
        asked["partition"],
        0,
        compute={"executor": "serial"},
        **shared,
    )
    results = [run(name, fed, rounds=asked["rounds"]) for name in ("kt_pfl", "fedavg", "local")]
    comparison = Comparison(results).under(headline=asked["headline"])
    assert comparison.headline == "auc"
    assert not comparison.nothing_learned
    for result in comparison:
        assert result.final["auc"].mean > 0.7, result.title
        assert result.final["balanced_accuracy"].mean > 0.6, result.title
    assert {str(each.client) for each in comparison.decisions} == {f"clinic {n + 1}" for n in range(CLINICS)}
