"""The command `run`: what Kedro would answer with a traceback is one sentence."""

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kedro.io import DatasetError
from kedro.pipeline import Pipeline, node

from ktpfl_pipeline import cli, hooks
from ktpfl_pipeline.core import errors


@pytest.mark.parametrize("value", ["{a", "*a", "@a", "!!python/name:os.system", "a\x01b"])
def test_params_that_are_no_yaml_are_one_sentence(value: str) -> None:
    for given in (["--params", f"digits.rounds={value}"], [f"--params=digits.rounds={value}"]):
        found = CliRunner().invoke(cli.run, ["--env=quick", *given])
        assert found.exit_code == 2
        assert f"--params digits.rounds={value.replace(chr(1), chr(92) + 'x01')} cannot be read (" in found.output
        assert "unicode string" not in found.output


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ("x.architectures=[cnn,mlp]", "Write a list with +: x.architectures=cnn+mlp; or"),
        ("x.rounds=1,x.seeds=0,1,x.clients=2", "Write a list with +: x.seeds=0+1; or"),
        (
            "x.architectures={cnn: 1, mlp: 2}",
            "Write a mapping key by key, as in x.architectures.a=1,x.architectures.b=2",
        ),
    ],
)
def test_commas_within_a_value_are_answered_with_what_to_write(given: str, way: str) -> None:
    output = " ".join(CliRunner().invoke(cli.run, ["--params", given]).output.split())
    assert f"--params {given} cannot be read: a comma begins the next setting. {way}" in output


def test_numbers_that_yaml_changes_are_refused_in_params_and_config_files_too(tmp_path: Path) -> None:
    (tmp_path / "run.yml").write_text("run: {params: {digits: {seeds: [1, 1:30]}}}")
    for given, message in (
        (
            "--params=digits.rounds=2,digits.seeds=010",
            "--params digits.seeds=010, line 1: YAML reads 010 as 8. Write 10",
        ),
        (f"--config={tmp_path}/run.yml", "run.yml, line 1: YAML reads 1:30 as a number of minutes or seconds."),
    ):
        found = CliRunner().invoke(cli.run, [given])
        assert found.exit_code == 2
        assert message in " ".join(found.output.split())


def test_params_without_a_value_keep_kedros_message() -> None:
    found = CliRunner().invoke(cli.run, ["--params", "x.rounds"])
    assert "must contain a key and a value separated by `=`" in " ".join(found.output.split())


def test_a_catalog_that_cannot_be_read_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**given: object) -> None:
        raise DatasetError("Class 'builtins.dict' not found.\nmore")

    monkeypatch.setattr(cli.run, "callback", fail)
    found = CliRunner().invoke(cli.run, [])
    assert found.exit_code == 1
    assert "The catalog cannot be read (Class 'builtins.dict' not found.): correct" in found.output


def test_pipelines_that_cannot_be_one_run_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**given: object) -> None:
        Pipeline([node(len, f"in {given}", f"out {each}", name="train") for each in range(2)])

    monkeypatch.setattr(cli.run, "callback", fail)
    found = CliRunner().invoke(cli.run, ["--pipelines=compare_a,compare_b"])
    assert found.exit_code == 2
    assert "--pipelines has compare_a, compare_b, which have steps of the same names" in " ".join(found.output.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf8_gets_other_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    cli.show_any_character()
    hooks.show("rule ───")
    assert written.getvalue() == b"rule ???\n"


class Full(io.StringIO):
    """A stream on a disk without room, or to a reader that is gone."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_reader_that_is_gone_with_both_outputs_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Full()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", Full())
    hooks.show("table")
    assert output.getvalue() == "table\n"


def test_a_full_standard_output_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    monkeypatch.setattr(sys, "stdout", Full())
    hooks.show("table")
    assert "The results are complete, but standard output could not be written (No space left on device)." in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("backend", ["garbage", "module://mine"])
def test_a_run_draws_without_a_window(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib cannot be imported where MPLBACKEND names none of its backends."""
    monkeypatch.setenv("MPLBACKEND", backend)
    found: list[str] = []
    monkeypatch.setattr(cli.run, "callback", lambda **_: found.append(os.environ["MPLBACKEND"]))
    assert CliRunner().invoke(cli.run, []).exit_code == 0
    assert found == ["agg"]


def test_a_warning_that_was_made_an_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(**_: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.warn("old call\nsecond line", DeprecationWarning, stacklevel=1)

    monkeypatch.setattr(cli.run, "callback", warn)
    found = CliRunner().invoke(cli.run, [])
    assert found.exit_code == 1
    assert "a package warned: old call (DeprecationWarning). Leave that out" in found.output


@pytest.mark.parametrize(("name", "package"), [("lab", "jupyterlab"), ("notebook", "notebook"), ("setup", "ipykernel")])
def test_jupyter_says_what_it_needs(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kedro would print `NoneType: None` with it."""
    monkeypatch.setattr(errors, "find_spec", lambda package: None)
    found = CliRunner().invoke(cli.cli, ["jupyter", name])
    assert found.exit_code == 1
    assert f"kedro jupyter {name} needs {package}, not installed: run " in found.output
    assert "NoneType" not in found.output


def test_jupyter_has_kedros_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda package: package)
    shown = CliRunner().invoke(cli.cli, ["jupyter", "--help"]).output
    assert all(name in shown for name in ("lab", "notebook", "setup"))
