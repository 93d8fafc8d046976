"""What the user can mend is one sentence; anything else keeps its traceback."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from bad_configuration import EXPERIMENT, TRACE, TRACKING, YAML, context
from click import ClickException
from kedro.io import DataCatalog, DatasetError, MemoryDataset
from kedro.pipeline import Pipeline
from kedro.pipeline import node as step
from kedro.runner import SequentialRunner

from ktpfl_pipeline import tracking
from ktpfl_pipeline.config import reading
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.hooks import ProjectHooks
from ktpfl_pipeline.pipeline_registry import register_pipelines
from ktpfl_pipeline.pipelines.datasets import ReportDataset
from ktpfl_pipeline.settings import HOOKS
from ktpfl_pipeline.terminal import TerminalHooks


@pytest.fixture(autouse=True)
def _tracker_as_before() -> Any:
    token = tracking._tracker.set(None)
    yield
    tracking._tracker.reset(token)


def test_they_are_registered() -> None:
    assert [type(hooks) for hooks in HOOKS] == [ProjectHooks, TerminalHooks]


class TestAfterContextCreated:
    def test_good_parameters_and_tracking(self, tmp_path: Path) -> None:
        ProjectHooks().after_context_created(context(tmp_path))
        assert tracking.current().checkpoints == tmp_path / "data/06_models"
        assert [file.name for file in tmp_path.iterdir()] == ["conf"]

    @pytest.mark.parametrize(
        ("runtime", "files", "message"),
        [
            ({"digits": {"clients": 0}}, {}, "digits.clients is 0; it should be greater than or equal to 1."),
            ({"digits": {"private": {"sorce": "x"}}}, {}, "did you mean 'source'?"),
            (
                {"diggits": {"rounds": 3}},
                {},
                "--params diggits=... names no experiment and no sweep; did you mean 'digits'?",
            ),
            (
                {"rounds": 3},
                {},
                "--params rounds=... names no experiment and no sweep; write the experiment first, as in digits.",
            ),
            ({"digits": 3}, {}, "digits is 3; it must be a section with the settings of an experiment."),
            (None, {"parameters": {"digits": {**EXPERIMENT, "rounds": 0}}}, "digits.rounds is 0; "),
            (None, {"parameters": "digits: [1, 2"}, "parameters.yml, unable to read line"),
            *((None, {"parameters": text}, message) for text, message in YAML.values()),
            (None, {"env": "bsae"}, "--env is 'bsae', which does not exist; did you mean 'base'?"),
            (None, {"parameters": {"other": None}}, "other is None; it must be a section"),
            (None, {"tracking": {**TRACKING, "uri": "x"}}, "unknown keys: uri."),
        ],
    )
    def test_bad_ones_are_one_sentence(self, tmp_path: Path, runtime: Any, files: Any, message: str) -> None:
        with pytest.raises(ClickException) as refused:
            ProjectHooks().after_context_created(context(tmp_path, runtime, **files))
        assert message in refused.value.message
        assert "\n" not in refused.value.message

    def test_no_code_in_them_ran(self) -> None:
        assert not TRACE.exists()
        assert "antigravity" not in sys.modules

    def test_another_error_is_not_dressed_up(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError):
            broken = context(tmp_path)
            del broken.config_loader.config_patterns["tracking"]
            ProjectHooks().after_context_created(broken)


class TestOnPipelineError:
    def test_what_the_user_can_mend(self) -> None:
        with pytest.raises(ClickException) as refused:
            ProjectHooks().on_pipeline_error(InputError("public.batch is 5: lower it."))
        assert refused.value.message == "public.batch is 5: lower it."
        assert refused.value.exit_code != 0

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (
                OSError(28, "No space left on device"),
                "A file could not be read or written (No space left on device): see",
            ),
            (
                PermissionError(13, "Permission denied", "a.csv"),
                "a.csv could not be read or written (Permission denied): ",
            ),
        ],
    )
    def test_what_the_system_refused(self, error: OSError, message: str) -> None:
        wrapped = DatasetError("Failed while saving data")
        wrapped.__cause__ = error
        for shown in (error, wrapped):
            with pytest.raises(ClickException) as refused:
                ProjectHooks().on_pipeline_error(shown)
            assert refused.value.message.startswith(message)

    @pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("another"), OSError("of a library's own")])
    def test_anything_else_keeps_its_traceback(self, error: Exception) -> None:
        """The hook returns, and Kedro raises the error itself."""
        ProjectHooks().on_pipeline_error(error)


def test_a_run_ends_with_the_table_and_the_place_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "data" / "08_reporting" / "digits" / "report.html"
    catalog = {"digits/report": SimpleNamespace(console=lambda: "THE TABLE", page=page)}
    pipeline = SimpleNamespace(outputs=lambda: {"digits/report", "digits/partition"})
    ProjectHooks().after_pipeline_run(pipeline, catalog)
    place = "Report: data/08_reporting/digits/report.html\n"
    assert capsys.readouterr().out == f"\nTHE TABLE\n{place}\n"
    (tmp_path / "Makefile").touch()
    tracking.configure({**TRACKING, "enabled": True}, tmp_path)
    ProjectHooks().after_pipeline_run(pipeline, catalog)
    steps = "All runs in MLflow: make ui\nThe pipeline in kedro-viz: make viz\n"
    assert capsys.readouterr().out == f"\nTHE TABLE\n{place}{steps}\n"


def test_a_table_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    catalog = {"digits/report": ReportDataset(filepath=str(tmp_path))}
    pipeline = SimpleNamespace(outputs=lambda: {"digits/report"})
    with pytest.raises(ClickException, match=r"cannot be read \(.*\): give the same command again\.$"):
        ProjectHooks().after_pipeline_run(pipeline, catalog)


def test_a_run_without_a_report_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    ProjectHooks().after_pipeline_run(SimpleNamespace(outputs=lambda: {"digits/partition"}), {})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("runner", ["ThreadRunner", "<kedro.runner.parallel_runner.ParallelRunner object>"])
def test_runners_that_tracking_does_not_reach_are_refused(runner: str) -> None:
    with pytest.raises(ClickException, match="SequentialRunner"):
        ProjectHooks().before_pipeline_run({"runner": runner}, Pipeline([]))


@pytest.mark.parametrize("runner", [None, "SequentialRunner"])
def test_the_default_runner_is_taken(runner: str | None) -> None:
    ProjectHooks().before_pipeline_run({"runner": runner}, Pipeline([]))


def test_models_of_others_are_looked_up_where_they_are_run_alone() -> None:
    """All else is checked with the parameters; torchvision takes seconds to import."""
    typo = {**EXPERIMENT, "architectures": ["torchvision:resnet17"]}
    sweep = {"experiment": "digits", "parameter": "rounds", "values": [1], "methods": ["local"]}
    reading.remember({"digits": typo, "mine": EXPERIMENT, "sweep_digits": sweep})
    for name in ("digits", "sweep_digits"):
        with pytest.raises(ClickException, match=r"^digits\.architectures: .*'resnet17'.*did you mean 'resnet1"):
            ProjectHooks().before_pipeline_run(
                {}, Pipeline([step(lambda given: given, f"params:{name}", "made", name="x")])
            )
    ProjectHooks().before_pipeline_run({}, Pipeline([step(lambda given: given, "params:mine", "made", name="x")]))


def test_kt_pfl_and_training_alone_come_first() -> None:
    """Each method is evaluated before the next is trained; Kedro's own order is that of names."""
    pipeline = register_pipelines()["compare_homo_digits"]
    ran: list[str] = []
    hooks = SimpleNamespace(hook=Mock(before_node_run=lambda node, **_: ran.append(node.name) or {}))
    for node in pipeline.nodes:
        node.func = lambda *_: 0
    ProjectHooks().before_pipeline_run({}, pipeline)
    catalog = DataCatalog({name: MemoryDataset(0) for name in pipeline.inputs()})
    SequentialRunner().run(pipeline, catalog, hooks)
    methods = [name for name in ran if "train" in name or "evaluate" in name]
    assert methods[:5] == [
        *("methods.kt_pfl_params.train_kt_pfl_params", "methods.kt_pfl_params.evaluate_kt_pfl_params"),
        *("methods.local.train_local", "methods.local.evaluate_local"),
        "methods.fedavg.train_fedavg",
    ]
    assert ran[-1] == "methods.report.report"
