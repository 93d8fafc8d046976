"""What the user can mend is one sentence; anything else keeps its traceback."""

import builtins
import io
import logging
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import click
import pytest
from bad_configuration import EXPERIMENT, TRACE, TRACKING, YAML, context
from click import ClickException
from click.globals import pop_context
from click.testing import CliRunner
from kedro.io import DataCatalog, DatasetError, MemoryDataset
from kedro.pipeline import Pipeline
from kedro.pipeline import node as step
from kedro.runner import SequentialRunner

from ktpfl_pipeline import hooks, tracking
from ktpfl_pipeline.config import reading
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.hooks import ProjectHooks
from ktpfl_pipeline.pipeline_registry import register_pipelines
from ktpfl_pipeline.runs import progress
from ktpfl_pipeline.settings import HOOKS

OWN = "ktpfl_pipeline.methods.fedmd:FedMD"
"""A method by its dotted path, as those of users are named."""

pytestmark = pytest.mark.usefixtures("no_tracker")


def test_they_are_registered() -> None:
    assert [type(hooks) for hooks in HOOKS] == [ProjectHooks]


class TestCommandLine:
    """What is said before and after the training: that a run starts, and that it was stopped."""

    def ran(self, place: Path, *arguments: str) -> Any:
        @click.command()
        @click.option("--stop", is_flag=True)
        @click.option("--terminate", is_flag=True)
        def run(stop: bool, terminate: bool) -> None:
            ProjectHooks().after_context_created(context(place))
            if stop:
                raise KeyboardInterrupt
            if terminate:
                os.kill(os.getpid(), signal.SIGTERM)

        return CliRunner().invoke(run, arguments)

    def test_ctrl_c_is_one_sentence(self, tmp_path: Path) -> None:
        result = self.ran(tmp_path, "--stop")
        assert result.exit_code == 130
        assert result.stderr.endswith("\nStopped. The same command goes on.\n")
        assert "Aborted" not in result.stderr
        pop_context()  # a context that is left by an error stays; a process ends with it

    def test_sigterm_is_the_same_sentence(self, tmp_path: Path) -> None:
        """From a scheduler or a container; a fork of this process just ends."""
        before = signal.getsignal(signal.SIGTERM)
        try:
            result = self.ran(tmp_path, "--terminate")
            assert result.exit_code == 143
            assert result.stderr.endswith("\nStopped. The same command goes on.\n")
            pop_context()
            if (child := os.fork()) == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == signal.SIGTERM
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_something_is_said_at_once(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "ktpfl_pipeline")
        assert self.ran(tmp_path).exit_code == 0
        assert caplog.messages[0] == "Loading …"

    def test_outside_of_a_command_nothing_is(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """In a notebook, for example."""
        caplog.set_level(logging.INFO, "ktpfl_pipeline")
        ProjectHooks().after_context_created(context(tmp_path))
        assert caplog.messages == []


class TestAfterContextCreated:
    def test_good_parameters_and_tracking(self, tmp_path: Path) -> None:
        ProjectHooks().after_context_created(context(tmp_path))
        assert tracking.current().checkpoints == tmp_path / "data/06_models"
        assert [file.name for file in tmp_path.iterdir()] == ["conf"]

    @pytest.mark.parametrize(
        ("runtime", "files", "message"),
        [
            ({"digits": {"clients": 0}}, {}, "digits.clients is 0; it must be an integer from 1 to 100,000 or null."),
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
            (None, {"parameters": "digits: [1, 2"}, "parameters.yml, line 1: "),
            *((None, {"parameters": text}, message) for text, message in YAML.values()),
            *(
                (None, {"env": env}, f"--env is {env!r}, which runs without --env read already")
                for env in ("base", "local")
            ),
            (None, {"env": "bsae"}, "--env is 'bsae', which does not exist; did you mean 'base'?"),
            (None, {"catalog": YAML["aliases of aliases"][0]}, "conf/base/catalog.yml has more than 20,000 values"),
            (None, {"parameters": {"other": None}}, "other is null; it must be a section"),
            (None, {"tracking": {**TRACKING, "uri": "x"}}, "tracking.uri does not exist; "),
        ],
    )
    def test_bad_ones_are_one_sentence(self, tmp_path: Path, runtime: Any, files: Any, message: str) -> None:
        with pytest.raises(ClickException) as refused:
            ProjectHooks().after_context_created(context(tmp_path, runtime, **files))
        assert message in refused.value.message
        assert "\n" not in refused.value.message

    @pytest.mark.parametrize("name", ["parameters", "catalog", "credentials", "tracking"])
    def test_a_file_that_may_not_be_read_is_named(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Opening it fails here by injection, because permissions do not stop root."""
        made = context(tmp_path, **{name: {"a": 1}})
        file, opened = tmp_path / "conf" / "base" / f"{name}.yml", builtins.open

        def refusing(path: Any, *arguments: Any, **options: Any) -> Any:
            if Path(str(path)) == file:
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr(builtins, "open", refusing)
        monkeypatch.setattr(io, "open", refusing)
        with pytest.raises(ClickException, match=r"cannot be read \(Permission denied\)\. Check") as refused:
            ProjectHooks().after_context_created(made)
        assert str(file) in refused.value.message

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
            (MemoryError(), "The run used up the memory of this machine (MemoryError). Stop other programs"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "The run used up the memory of this machine"),
        ],
    )
    def test_what_the_system_refused(self, error: Exception, message: str) -> None:
        wrapped = DatasetError("Failed while saving data")
        wrapped.__cause__ = error
        for shown in (error, wrapped):
            with pytest.raises(ClickException) as refused:
                ProjectHooks().on_pipeline_error(shown)
            assert refused.value.message.startswith(message)

    def test_a_run_that_begins_inside_a_box(self) -> None:
        """With --from-nodes: what comes before it is not there."""
        pipeline = Pipeline([step(lambda settled: None, "methods.kt_pfl.settled", None, name="train")])
        catalog = DataCatalog({"methods.kt_pfl.settled": MemoryDataset()})
        with pytest.raises(DatasetError) as raised:
            SequentialRunner().run(pipeline, catalog)
        with pytest.raises(ClickException) as refused:
            ProjectHooks().on_pipeline_error(raised.value)
        assert refused.value.message.startswith(
            "The run begins after the step that makes methods.kt_pfl.settled, which"
        )

    @pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("another"), OSError("of a library's own")])
    def test_anything_else_keeps_its_traceback(self, error: Exception) -> None:
        """The hook returns, and Kedro raises the error itself."""
        ProjectHooks().on_pipeline_error(error)


def test_a_run_ends_with_the_table_and_the_place_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "data" / "08_reporting" / "digits" / "report.html"
    run_params: dict[str, Any] = {"pipeline_names": ["homo_digits"], "env": "test"}
    report = SimpleNamespace(console=lambda: "THE TABLE", page=page, made=True, failed="")
    catalog = {"digits/report": report}
    pipeline = SimpleNamespace(outputs=lambda: {"digits/report", "digits/partition"})
    ProjectHooks().after_pipeline_run(run_params, pipeline, catalog)
    place = "Report: data/08_reporting/digits/report.html\n"
    assert capsys.readouterr().out == f"\nTHE TABLE\n{place}\n"
    (tmp_path / "Makefile").touch()  # of another project's
    ProjectHooks().after_pipeline_run(run_params, pipeline, catalog)
    assert "make" not in capsys.readouterr().out
    (tmp_path / "src" / "ktpfl_pipeline").mkdir(parents=True)
    report.made = False
    tracking.configure({**TRACKING, "enabled": True}, tmp_path)
    ProjectHooks().after_pipeline_run(run_params, pipeline, catalog)
    steps = "All runs in MLflow: make ui\nThe pipeline in kedro-viz: make viz PIPELINE=digits ENV=test\n"
    old = "Nothing was missing: this is the newest report of those before.\n"
    assert capsys.readouterr().out == f"\n{old}THE TABLE\n{place}{steps}\n"
    ProjectHooks().after_pipeline_run({"pipeline_names": None, "env": None}, pipeline, catalog)
    assert "The pipeline in kedro-viz: make viz PIPELINE=digits\n" in capsys.readouterr().out, "of the default pipeline"
    report.failed = "2 cells failed."
    with pytest.raises(ClickException, match=r"^2 cells failed\.$"):
        ProjectHooks().after_pipeline_run(run_params, pipeline, catalog)
    assert "THE TABLE" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["what?", "a*b", "my[1]", "x#2", "caf\udce9"])
def test_a_folder_whose_name_means_something_else_is_refused(name: str) -> None:
    """Kedro would read patterns, MLflow parts of an address; the last is no UTF-8."""
    with pytest.raises(InputError, match=r"^The project's folder is .*Rename the folder, or move the project\.$"):
        hooks.check_folder(Path("/home/anna") / name)
    hooks.check_folder(Path("/home/anna/Ärzte & co (2), {x} @ 50%"))


def test_a_run_without_a_report_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    ProjectHooks().after_pipeline_run({}, SimpleNamespace(outputs=lambda: {"digits/partition"}), {})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("runner", ["ThreadRunner", "<kedro.runner.parallel_runner.ParallelRunner object>"])
def test_runners_that_tracking_does_not_reach_are_refused(runner: str) -> None:
    with pytest.raises(ClickException, match="SequentialRunner"):
        ProjectHooks().before_pipeline_run({"runner": runner}, Pipeline([]))


@pytest.mark.parametrize("runner", [None, "SequentialRunner"])
def test_the_default_runner_is_taken(runner: str | None) -> None:
    before = hooks.started()
    ProjectHooks().before_pipeline_run({"runner": runner}, Pipeline([]))
    assert hooks.started() == before + 1


def test_models_of_others_are_looked_up_where_they_are_run_alone() -> None:
    """All else is checked with the parameters; torchvision takes seconds to import."""
    typo = {**EXPERIMENT, "architectures": ["torchvision:resnet17"]}
    sweep = {"experiment": "digits", "parameter": "rounds", "values": [1], "methods": ["local"]}
    last = {**sweep, "experiment": "mine", "parameter": "architectures", "values": [["mlp"], typo["architectures"]]}
    reading.remember({"digits": typo, "mine": EXPERIMENT, "sweep_digits": sweep, "sweep_last": last})
    for name in ("digits", "sweep_digits", "sweep_last"):
        with pytest.raises(ClickException, match=r"^(digits|mine)\.architectures: .*'resnet17'.*did you mean 'resnet1"):
            ProjectHooks().before_pipeline_run(
                {}, Pipeline([step(lambda given: given, f"params:{name}", "made", name="x")])
            )
    ProjectHooks().before_pipeline_run({}, Pipeline([step(lambda given: given, "params:mine", "made", name="x")]))


@pytest.mark.parametrize(
    ("compare", "output", "told"),
    [
        (["local"], "compare_mine/report", True),
        (["local"], "mine/report", False),
        (["all"], "compare_mine/report", False),
        ([OWN], "compare_mine/report", False),
    ],
    ids=["left out", "KT-pFL alone", "all", "listed"],
)
def test_a_method_of_ones_own_that_a_list_leaves_out_is_told_of(
    caplog: pytest.LogCaptureFixture, compare: list[str], output: str, told: bool
) -> None:
    reading.remember({"mine": {**EXPERIMENT, "methods": {OWN: {}, "fedmd": {}}, "compare": compare}})
    ProjectHooks().before_pipeline_run({}, Pipeline([step(lambda given: given, "params:mine", output, name="x")]))
    said = f"compare_mine leaves out {OWN} of mine.methods, because mine.compare does not list it: add to the list what"
    assert [message.startswith(said) for message in caplog.messages] == [True] * told


def trainings() -> int | None:
    plan = progress._plan.get()
    return plan and plan.trainings


def test_kt_pfl_and_training_alone_come_first() -> None:
    """Results come after the last training, so that no method's divergence stops another; Kedro's order is by name."""
    pipeline = register_pipelines()["compare_homo_digits"]
    ran: list[str] = []
    hooks = SimpleNamespace(hook=Mock(before_node_run=lambda node, **_: ran.append(node.name) or {}))
    ProjectHooks().before_pipeline_run({}, pipeline)
    assert trainings() == sum(name.startswith("train_") for name in (node.short_name for node in pipeline.nodes)) > 10
    for node in pipeline.nodes:
        node.func = lambda *_, node=node: [0] * len(node.outputs) if len(node.outputs) > 1 else 0
    catalog = DataCatalog({name: MemoryDataset(0) for name in pipeline.inputs()})
    SequentialRunner().run(pipeline, catalog, hooks)
    trained = [name.rpartition(".train_")[2] for name in ran if ".train_" in name]
    evaluated = [name.rpartition(".evaluate_")[2] for name in ran if ".evaluate_" in name]
    assert trained[:3] == ["kt_pfl_params", "local", "fedavg"]
    assert evaluated == trained
    assert ran[-len(evaluated) - 1 : -1] == [f"methods.{name}.evaluate_{name}" for name in evaluated]
    assert ran[-1] == "methods.report.report"


def test_what_is_missing_keeps_its_turns_and_is_counted_alone() -> None:
    pipeline = register_pipelines()["compare_homo_digits"]
    ProjectHooks().before_pipeline_run({}, pipeline)
    whole = trainings()
    missing = pipeline.filter(node_names=[node.name for node in pipeline.nodes if not node.name.endswith("_local")])
    assert whole is not None
    assert trainings() == whole - 1
    names = [node.short_name for node in missing.nodes if "train" in node.name]
    assert names[:2] == ["train_kt_pfl_params", "train_fedavg"]
