"""Sections of conf/ are those that a run remembers, or else what stands in the project of the current folder."""

from pathlib import Path

import pytest
from bad_configuration import EXPERIMENT, context
from click import ClickException
from kedro.framework.project import configure_project, pipelines

from ktpfl_pipeline.config import parsing, reading
from ktpfl_pipeline.hooks import ProjectHooks
from ktpfl_pipeline.pipeline_registry import register_pipelines
from ktpfl_pipeline.runs.sweep import as_written

MINE = {"digits": EXPERIMENT, "mine": {"like": "digits", "rounds": 2}, "sweep_x": {}, "tune_mine": {}, "_shared": {}}
NAMES = {"digits", "compare_digits", "mine", "compare_mine", "tune_mine", "sweep_x", "overview", "__default__"}


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "local").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def test_every_section_of_the_project_becomes_its_pipelines(tmp_path: Path) -> None:
    context(tmp_path, parameters=MINE)
    found = register_pipelines()
    assert set(found) == NAMES
    assert found["__default__"] is found["digits"]  # where there is no compare_hetero_digits
    assert len(found) == len(NAMES)


def test_the_first_run_is_the_default_where_conf_has_it(tmp_path: Path) -> None:
    context(tmp_path, parameters={**MINE, "sweep_first_run": MINE["sweep_x"]})
    found = register_pipelines()
    assert found["__default__"] is found["sweep_first_run"]


def test_an_environment_may_add_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(tmp_path)
    (tmp_path / "conf" / "ours").mkdir()
    (tmp_path / "conf" / "ours" / "parameters.yml").write_text("theirs: {like: digits, rounds: 2}")
    monkeypatch.setenv("KEDRO_ENV", "ours")
    configure_project("ktpfl_pipeline")
    assert reading.recall()["theirs"] == {**EXPERIMENT, "rounds": 2}


def test_aliases_may_repeat_settings(tmp_path: Path) -> None:
    shared = "_shared: &many [" + "mlp, " * 1000 + "mlp]\nmine: {like: digits, architectures: *many}"
    context(tmp_path)
    (tmp_path / "conf" / "local" / "parameters.yml").write_text(shared)
    configure_project("ktpfl_pipeline")
    assert reading.recall()["mine"]["architectures"] == ["mlp"] * 1001


@pytest.mark.parametrize("name", ["mine", "compare_mine"])
def test_a_section_of_conf_local_that_another_environment_hides_is_told_of(tmp_path: Path, name: str) -> None:
    (tmp_path / "conf" / "quick").mkdir()
    made = context(tmp_path, env="quick")
    (tmp_path / "conf" / "local" / "parameters.yml").write_text("mine: {like: digits}")
    ProjectHooks().after_context_created(made)
    with pytest.raises(ClickException) as refused:
        register_pipelines()[name]
    assert refused.value.message == (
        f"There is no pipeline {name!r}; conf/local has 'mine', and --env=quick is read instead of conf/local: leave "
        "--env out, or move the section to conf/base or conf/quick."
    )


@pytest.mark.parametrize("before", [["mlp", "cnn"], {"mlp": 3, "cnn": 2}])
def test_an_environment_may_deal_architectures_out_anew(tmp_path: Path, before: object) -> None:
    """A mapping takes the place of a list, and of another mapping: with what was there it would not add up."""
    context(tmp_path, parameters={"digits": {**EXPERIMENT, "architectures": before}})
    (tmp_path / "conf" / "local" / "parameters.yml").write_text("digits: {architectures: {lenet: 4, mlp: 1}}")
    configure_project("ktpfl_pipeline")
    assert reading.recall()["digits"] == {**EXPERIMENT, "architectures": {"lenet": 4, "mlp": 1}}


@pytest.mark.usefixtures("no_tracker")
def test_a_run_reads_them_once_and_hands_them_to_kedro(tmp_path: Path) -> None:
    run = context(tmp_path, {"digits": {"rounds": 3}}, parameters={"digits": EXPERIMENT, "mine": {"like": "digits"}})
    ProjectHooks().after_context_created(run)
    expected = {name: {**EXPERIMENT, "rounds": 3} for name in ("digits", "mine")}
    assert run.config_loader["parameters"] == reading.recall() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine: {like: yours}\nyours: {like: mine}", "yours.like is 'mine', which is like yours itself"),
        ("mine: [1, 2", "parameters.yml, line 1: expected ',' or ']'"),
        ("mine: {rounds: 3}", "mine.private is missing; set it in conf/"),
    ],
)
def test_listing_pipelines_of_bad_configuration_is_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    context(tmp_path, parameters=text)
    configure_project("ktpfl_pipeline")
    with pytest.raises(ClickException) as refused:
        list(pipelines)
    assert message in refused.value.message
    assert "\n" not in refused.value.message


def test_a_tuning_without_a_section_is_told_how_to_have_one(tmp_path: Path) -> None:
    context(tmp_path)
    with pytest.raises(ClickException, match=r"a section tune_digits in conf/, such as `tune_digits: {like: tune_het"):
        register_pipelines()["tune_digits"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine: {seeds: [010, 011]}", "parameters.yml, line 1: YAML reads 010 as 8. Write 10, or put quotes around it"),
        ("mine:\n  rounds: 08", "line 2: YAML reads 08 as a text. Write 8"),
        ("mine: {private: {samples: -0_12}}", "YAML reads -0_12 as -10. Write -12"),
        ("mine: {rounds: 1:30}", "YAML reads 1:30 as a number of minutes or seconds"),
        ("mine: {rounds: 1:30:00.5}", "YAML reads 1:30:00.5 as a number of minutes"),
        ("mine: {methods: {010: {}}}", "YAML reads 010 as 8"),
    ],
)
def test_a_number_that_yaml_changes_is_refused(tmp_path: Path, text: str, words: str) -> None:
    made = context(tmp_path)
    (tmp_path / "conf" / "local" / "parameters.yml").write_text(text)
    with pytest.raises(ClickException) as refused:
        ProjectHooks().after_context_created(made)
    assert words in refused.value.message


def test_a_sweep_reads_sections_as_written_where_kedro_has_parsed_them(tmp_path: Path) -> None:
    """Kedro parses the experiments of all pipelines if the command names none, as make run."""
    context(tmp_path, parameters={"digits": EXPERIMENT})
    register_pipelines()
    written = reading.recall()
    parsed = {**written, "digits": parsing.form("digits", written["digits"])}
    assert as_written(parsed) == written
