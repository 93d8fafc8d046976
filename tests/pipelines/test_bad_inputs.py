"""Bad inputs on their way through a project: an error before training, in one sentence, with nothing half-written.

What `parsing.parse` alone can tell is in `test_schema.py`; here the images decide, or the command line does.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_data import CASES, IMAGES, LABELS, MINE, Prepare, data_box
from click.testing import CliRunner
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.project import configure_project
from project_copy import EXPERIMENT, Project, quick_yaml

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.federated import FederatedData


def refusal(raw: Path, prepare: Prepare | None, settings: dict[str, Any]) -> str:
    """Return the error message for these settings, having seen that the data nodes left no file behind."""
    if prepare:
        prepare(raw)
    before = {file: file.read_bytes() for file in raw.parent.rglob("*") if file.is_file()}
    with pytest.raises(InputError) as refused:
        data_box(raw, settings)
    assert {file: file.read_bytes() for file in raw.parent.rglob("*") if file.is_file()} == before
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path: Path, case: str) -> None:
    prepare, settings, words = CASES[case]
    (tmp_path / "01_raw").mkdir()
    message = refusal(tmp_path / "01_raw", prepare, settings)
    for word in words:
        assert word in message


def test_good_inputs_are_not_refused(tmp_path: Path) -> None:
    """What every case above changes: the digits, and one's own file."""
    assert private_images(data_box(tmp_path, {})) == {0: 1258, 1: 1258}
    np.savez(tmp_path / "mine.npz", images=IMAGES, labels=LABELS)
    assert private_images(data_box(tmp_path, {**MINE, "seeds": [0]})) == {0: 280}  # of 400 images, 30 % are public


def private_images(data: FederatedData) -> dict[int, int]:
    """Return by seed how many images the clients own together."""
    return {seed: int(own.label_counts.sum()) for seed, own in data.seeds.items()}


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    """Another experiment: mistakes in it count too."""
    return ("homo_digits",)


@pytest.fixture(scope="module")
def shared(tracked: Callable[[], Project]) -> Project:
    return tracked()


@pytest.fixture
def project(shared: Project) -> Iterator[Project]:
    """A project in which no run may begin."""
    yield shared
    assert shared.tracked() == [], "an MLflow run was begun"
    shutil.rmtree(shared.folder / "data")
    (shared.folder / "data" / "01_raw").mkdir(parents=True)


class TestCommandLine:
    """`kedro run` itself, in this process: what it prints and how it ends."""

    @pytest.fixture
    def kedro(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
        monkeypatch.chdir(project.folder)
        configure_project("ktpfl_pipeline")

        def command(*arguments: str) -> tuple[int, str]:
            with quick_yaml():
                done = CliRunner().invoke(kedro_run, ["--env=test", "--pipelines=hetero_digits", *arguments])
            assert not isinstance(done.exception, Exception), "kedro would print a traceback"
            return done.exit_code, done.output

        return command

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("hetero_digits.clinets=5", "hetero_digits.clinets does not exist; did you mean 'clients'?"),
            ("hetero_digits.training.learning_rate=nan", "hetero_digits.training.learning_rate is "),
            ("hetero_digits.methods.kt_pfl.roh=0.1", "did you mean 'rho'?"),
            ("hetero_digits.clients=0,hetero_digits.rounds=0", "hetero_digits.clients is 0; it must be"),
            (
                "rounds=3",
                "--params rounds=... names no experiment and no sweep; write the experiment first, as in ",
            ),
            (
                "hetero_digit.rounds=3",
                "--params hetero_digit=... names no experiment and no sweep; did you mean 'hetero_digits'?",
            ),
            ("homo_digits.rounds=0", "homo_digits.rounds is 0;"),  # another experiment, and still a mistake
            (
                "hetero_digits.newcomers=0.2,hetero_digits.adversaries.share=0.2",
                "hetero_digits.newcomers is 0.2, but new clients are evaluated among benign clients",
            ),
            (
                "hetero_digits.compare=my_package/prior.py:Prior",
                "hetero_digits.compare is 'my_package/prior.py:Prior', which is not a dotted path",
            ),
            ("hetero_digits.public.batch=600", "lower public.batch to 135 or less"),
            ("hetero_digits.private.source=npz:nowhere/my.npz", "nowhere/my.npz: correct the path"),
        ],
    )
    def test_a_sentence(self, project: Project, kedro: Any, arguments: str, message: str) -> None:
        code, output = kedro("--params", arguments)
        assert code == 1
        assert re.search(rf"^Error: .*{re.escape(message)}", output, re.MULTILINE), output
        assert output.count("Error: ") == 1
        assert project.written() == []


def test_the_real_command(project: Project) -> None:
    """A process of its own: exit code, one line on stderr, no traceback."""
    np.savez(project.folder / "data" / "01_raw" / "mine.npz", images=IMAGES, labels=LABELS[:-1])
    code, output, errors = project.command(
        "--pipelines=hetero_digits", "--params", f"{EXPERIMENT}.private.source=npz:mine.npz"
    )
    assert code == 1
    assert output == ""
    assert "Traceback" not in errors
    assert re.search(r"^Error: .*mine\.npz has 400 images and 399 labels: save as many", errors, re.MULTILINE), errors
    assert project.written() == ["data/01_raw/mine.npz"]
