"""The commands `ktpfl export` and `ktpfl predict`."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pytest
from experiment import EXPERIMENT
from mlflow import MlflowClient

from ktpfl_pipeline import tracking
from ktpfl_pipeline.__main__ import main
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import VALIDATION
from ktpfl_pipeline.data.converters import tables
from ktpfl_pipeline.export import chosen, exported, of_seed
from ktpfl_pipeline.runs.identity import Job
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.run import run_all
from ktpfl_pipeline.tracking import MlflowTracker

PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "use_models.md"
SITES = ("north", "east", "=cmd")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on a table of patients, as the pipelines leave them."""
    folder = tmp_path_factory.mktemp("project")
    (raw := folder / "data" / "01_raw").mkdir(parents=True)
    draw = np.random.default_rng(0)
    rows = [
        f"{40 + 15 * (n % 2) + draw.integers(20)},{'yes' if draw.random() < 0.5 else 'no'},{SITES[n % 3]},{ill}"
        for n in range(150)
        for ill in [("benign", "malignant")[n % 2]]
    ]
    (raw / "patients.csv").write_text("\n".join(["age,smoker,hospital,diagnosis", *rows]) + "\n")
    np.savez(raw / "patients.npz", **tables.convert(raw / "patients.csv", "diagnosis", "hospital")[0])
    given = {"private": {"source": "npz:patients.npz"}, "public": {"source": "open_part", "batch": 5}, "clients": None}
    how = {"partition": {"scheme": "natural"}, "architectures": ["mlp"], "seeds": [3, 2], "rounds": 1, "image": None}
    experiment = parsing.parse("patients", {**EXPERIMENT, **given, **how})
    experiments[folder] = experiment, prepare(experiment, raw)
    for method in ("fedavg", "local"):
        train(folder, method)
    return folder


experiments: dict[Path, Any] = {}


def train(folder: Path, method: str, models: str = "first") -> None:
    experiment, data = experiments[folder]
    with tracking.without_store(folder / "data" / "06_models", models):
        result = summarize(run_all(Job("patients", method, experiment, data)), {})
    (place := folder / "data" / "07_model_output" / "patients" / method).mkdir(parents=True, exist_ok=True)
    (place / "result.json").write_text(json.dumps(result.to_dict()))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    return int(ended.value.code or 0)


def test_the_commands_of_the_page(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    (project / "new_patients.csv").write_text("smoker,age\nno,41\n,72\n")
    page = PAGE.read_text("utf-8")
    export, predict = re.findall(r"^ktpfl (export patients|predict models/patients/north .*)$", page, re.MULTILINE)
    assert run(*export.split()) == 0
    out, said = capsys.readouterr()
    header, *rows = out.splitlines()
    assert "Fewer than 5 validation samples, no choice: 3 of 3 clients." in said
    assert header in page
    assert [row.split(",")[0] for row in rows] == sorted(SITES)
    assert [row.split(",")[-1] for row in rows] == [f"models/patients/{name}" for name in ("cmd", "east", "north")]
    assert run(*predict.split()) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header in page
    assert [re.sub(r"0\.\d{4}|1\.0000", "p", row) for row in rows] == [
        f"new_patients.csv:1,{rows[0].split(',')[1]},p,p",
        f"new_patients.csv:2,{rows[1].split(',')[1]},p,p",
    ]
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    known: dict[str, Any] = {}
    exec(code, known)
    assert known["probabilities"].shape == (2, 2)
    assert run(*export.split()) == 1
    assert "models/patients/cmd is there already" in capsys.readouterr().err


def test_one_method_and_one_client(project: Path, tmp_path: Path) -> None:
    rows = exported("patients", "fedavg", ["north"], tmp_path, project / "data")
    assert [row[:2] for row in rows] == [("north", "fedavg")]
    about = json.loads((tmp_path / "patients" / "north" / "about.json").read_text())
    known = [about[name] for name in ("name", "method", "class_names", "columns")]
    assert known == ["north", "fedavg", ["benign", "malignant"], ["age", "smoker=no", "smoker=yes"]]


@pytest.mark.parametrize(
    ("experiment", "method", "client", "words"),
    [
        ("patient", None, (), "has no finished runs of 'patient' .there are patients."),
        ("patients", "kt_pfl", (), "method 'kt_pfl' is unknown.*fedavg, local"),
        ("patients", None, ("south",), "client 'south' is unknown.*north"),
    ],
)
def test_what_does_not_exist(
    project: Path, tmp_path: Path, experiment: str, method: str | None, client: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        exported(experiment, method, client, tmp_path, project / "data")
    assert not any(tmp_path.iterdir())


def test_runs_without_models_ask_for_the_run(project: Path, tmp_path: Path) -> None:
    (models,) = (project / "data" / "06_models" / "patients" / "local").glob("*/models.pt")
    away = models.rename(tmp_path / "models.pt")
    with pytest.raises(InputError, match=r"with seed 2, .* do not exist: write `models: all`"):
        exported("patients", "local", (), tmp_path / "out", project / "data")
    away.rename(models)


def test_models_of_another_seed_are_exported_after_the_command_was_repeated(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seed of fedavg '7' is unknown: choose from 2, 3\."):
        exported("patients", "fedavg", (), tmp_path, project / "data", 7)
    with pytest.raises(
        InputError, match=r"with seed 3, .*/models\.pt, do not exist: write `models: all` into conf/local"
    ):
        exported("patients", "fedavg", (), tmp_path, project / "data", 3)
    assert not any(tmp_path.iterdir())
    train(project, "fedavg", models="all")
    seeds = [
        exported("patients", "fedavg", ["north"], tmp_path / str(seed), project / "data", seed)[0].seed
        for seed in (None, 3)
    ]
    about = [json.loads((tmp_path / name / "patients" / "north" / "about.json").read_text()) for name in ("None", "3")]
    assert seeds == [each["seed"] for each in about] == [2, 3]


def test_models_are_listed_in_mlflow_once(project: Path, tmp_path: Path, empty_store: Path) -> None:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlruns")
    with tracker.run(tracking.Entry("patients", "run", "key", {}, {})) as tracked:
        pass
    made = exported("patients", "fedavg", ["north", "=cmd"], tmp_path, project / "data")
    own = [each._replace(run=replace(each.run, run_id=tracked.run_id)).tracked() for each in made]
    tracker.add_models(own)
    tracker.add_models(own)
    client = MlflowClient(tracker.store)
    listed = client.search_logged_models([client.get_run(tracked.run_id).info.experiment_id])
    assert {each.name: each.params["client"] for each in listed} == {"north": "north", "cmd": "=cmd"}
    assert {each.status for each in listed} == {"READY"}
    for each in listed:
        (exported_one,) = (one for one in made if one.client == each.params["client"])
        found = {metric.key: metric.value for metric in each.metrics}
        assert found["kept/test_accuracy"] == pytest.approx(exported_one.test)
        served = mlflow.pyfunc.load_model(Path(each.artifact_location.removeprefix("file://")).as_posix())
        assert [one["name"] for one in served.metadata.signature.inputs.to_dict()] == ["age", "smoker"]


def test_errors_of_predict_are_sentences(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("predict", str(tmp_path)) == 2
    assert "Give an INPUT, or a text with --text." in capsys.readouterr().err
    assert run("predict", str(tmp_path), "a.csv") == 1
    assert "has no model that can be used" in capsys.readouterr().err


def result(*accuracy: float, data: str = "same", samples: int = 20) -> Any:
    record = SimpleNamespace(accuracy={VALIDATION: [*accuracy]} if accuracy else {})
    run = SimpleNamespace(seed=0, data=data, evaluated=[record], samples={VALIDATION: [samples] * 3})
    return SimpleNamespace(runs=[run])


def chosen_of(results: dict[str, Any], place: int = 0) -> str:
    return chosen(of_seed(results, None), place)


def test_each_client_chooses_by_its_validation_samples_and_its_own_model_after_a_tie() -> None:
    results = {"kt_pfl": result(0.8, 0.7, 0.9), "fedmd": result(0.9, 0.7, 0.2), "local": result(0.5, 0.7, 0.9)}
    assert [chosen_of(results, place) for place in range(3)] == ["fedmd", "local", "local"]
    few = {name: result(*accuracy, samples=4) for name, accuracy in {"kt_pfl": (0.8,), "local": (0.5,)}.items()}
    assert chosen_of(few) == "local"


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ({"kt_pfl": result(0.5)}, "local-only training has no finished run"),
        ({"kt_pfl": result(), "local": result()}, "the clients have no validation samples"),
        ({"kt_pfl": result(0.5), "local": result(0.5, data="other")}, "the methods were run on different data"),
    ],
)
def test_without_a_choice_the_method_must_be_named(results: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=f"cannot choose a model, because {why}: name the method with --method"):
        chosen_of(results)
