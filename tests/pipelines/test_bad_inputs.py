"""Bad inputs on their way through a project: refused before training, in one sentence, with nothing half-written.

What `parsing.parse` alone can tell is in `test_schema.py`; here the images decide, or the command line does.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from kedro.config import OmegaConfigLoader
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.project import configure_project
from project_copy import EXPERIMENT, ROOT, Project

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.pipelines.prepare import prepare
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (400, 28, 28), dtype=np.uint8)
LABELS = np.arange(400) % 10
MINE = {"private": {"source": "npz:mine.npz"}}
Prepare = Callable[[Path], Any]


def refusal(raw: Path, prepare: Prepare | None, settings: dict[str, Any]) -> str:
    """Return the sentence with which the data box refuses these settings, having seen that it left no file behind."""
    if prepare:
        prepare(raw)
    before = {file: file.read_bytes() for file in raw.parent.rglob("*") if file.is_file()}
    with pytest.raises(InputError) as refused:
        data_box(raw, settings)
    assert {file: file.read_bytes() for file in raw.parent.rglob("*") if file.is_file()} == before
    message = str(refused.value)
    assert "\n" not in message
    return message


@cache
def configuration() -> dict[str, Any]:
    """Return what stands in conf/test."""
    return dict(OmegaConfigLoader(conf_source=str(ROOT / "conf"), env="test", **CONFIG_LOADER_ARGS)["parameters"])


def data_box(raw: Path, settings: dict[str, Any]) -> FederatedData:
    """Do what the data box does with the digits of conf/test and these changes."""
    configured = parsing.merged(configuration(), {EXPERIMENT: settings})
    return prepare(parsing.parse(EXPERIMENT, configured[EXPERIMENT]), raw)


def save(**arrays: Any) -> Prepare:
    return lambda raw: np.savez(raw / "mine.npz", **arrays)


def damaged(spoil: Callable[[bytearray], Any]) -> Prepare:
    def prepare(raw: Path) -> None:
        np.savez(raw / "mine.npz", images=IMAGES, labels=LABELS)
        content = bytearray((raw / "mine.npz").read_bytes())
        spoil(content)
        (raw / "mine.npz").write_bytes(content)

    return prepare


def zeros(content: bytearray) -> None:
    content[5000:6000] = bytes(1000)


def half(content: bytearray) -> None:
    del content[len(content) // 2 :]


CASES: dict[str, tuple[Prepare | None, dict[str, Any], list[str]]] = {
    # Settings that do not go with the images.
    "too many clients": (None, {"clients": 2000}, ["1,258 samples are too few for 2,000 clients", "Lower clients"]),
    "two labels, too few clients": (
        None,
        {"clients": 3},
        ["cannot share 10 classes out among 3 clients", "at least half as many clients (5)"],
    ),
    "too little to train on": (None, {"partition": {"test_share": 0.999}}, ["too few", "Lower clients or test_share"]),
    "nothing open": (None, {"public": {"share": 1e-6}}, ["the public share 1e-06", "nearer to 0.5"]),
    "everything open": (None, {"public": {"share": 0.999999}}, ["the public share 0.999999", "nearer to 0.5"]),
    "public set too small": (
        None,
        {"public": {"batch": 600}},
        ["public.batch is 600 and the public set has 539 images", "lower public.batch to 539 or less"],
    ),
    "another public set too small": (
        lambda raw: np.savez(raw / "public.npz", images=IMAGES[:20], labels=LABELS[:20]),
        {"public": {"source": "npz:public.npz"}},
        ["public.batch is 60 and the public set has 20 images", "lower public.batch to 20 or less"],
    ),
    "the same source twice": (
        None,
        {"public": {"source": "digits"}},
        ["the public set overlaps with the private data: 1,797 of its 1,797 images", "Choose another public.source"],
    ),
    "another file with the same images": (
        lambda raw: [
            np.savez(raw / "mine.npz", images=IMAGES, labels=LABELS),
            np.savez(raw / "public.npz", images=np.concatenate([IMAGES[:9], 255 - IMAGES[:200]]), labels=[0] * 209),
        ],
        {**MINE, "public": {"source": "npz:public.npz"}},
        ["overlaps with the private data: 9 of its 209 images", "Choose another public.source"],
    ),
    "a class that is not there": (None, {"private": {"classes": [0, 12]}}, ["class 12", "0 to 9"]),
    "a class twice": (None, {"private": {"classes": [3, 3]}}, ["classes [3, 3]", "each once"]),
    "no class": (None, {"private": {"classes": []}}, ["classes []", "one class or more"]),
    "one class": (
        None,
        {"private": {"classes": [3]}, "partition": {"scheme": "iid"}, "public": {"batch": 10}},
        ["digits", "one class", "private.classes"],
    ),
    "an argument for a source that takes none": (None, {"private": {"source": "digits:8x8"}}, ["8x8", "leave out"]),
    "a split that EMNIST has not": (None, {"private": {"source": "emnist:leters"}}, ["leters", "emnist:<split>"]),
    "a GPU that is not there": (None, {"compute": {"device": "cuda:99"}}, ["'cuda:99'", "choose auto or cpu"]),
    # The user's own files.
    "no file": (None, MINE, ["there is no file", "mine.npz", "correct the path"]),
    "no path": (None, {"private": {"source": "npz:"}}, ["'npz' needs a path", "npz:yourfile.npz"]),
    "corrupt": (damaged(zeros), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "cut short": (damaged(half), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "empty file": (damaged(bytearray.clear), MINE, ["mine.npz is not a whole .npz file", "save it again"]),
    "floats": (save(images=IMAGES / 255, labels=LABELS), MINE, ["float64 and must be uint8", "astype('uint8')"]),
    "no labels": (save(images=IMAGES), MINE, ["has no array 'labels', only images", "labels=labels"]),
    "labels that do not match": (save(images=IMAGES, labels=LABELS[:-1]), MINE, ["400 images and 399 labels", "save"]),
    "labels that are no numbers": (save(images=IMAGES, labels=LABELS / 1), MINE, ["'labels'", "must be integers"]),
    "negative labels": (save(images=IMAGES, labels=LABELS - 1), MINE, ["from -1 to 8", "number the classes from 0"]),
    "pickled objects": (save(images=IMAGES, labels=LABELS.astype(object)), MINE, ["Python objects", "plain numbers"]),
    "channels first": (
        save(images=np.zeros((60, 3, 28, 28), np.uint8), labels=LABELS[:60]),
        MINE,
        ["(60, 3, 28, 28)", "images.transpose(0, 2, 3, 1)"],
    ),
    "too few images": (
        save(images=IMAGES[:30], labels=LABELS[:30]),
        MINE,
        ["public.batch is 60", "lower public.batch"],
    ),
    "no folder": (None, {"private": {"source": "folder:mine"}}, ["there is no folder", "correct the path"]),
    "folder without subfolders": (
        lambda raw: (raw / "mine").mkdir(),
        {"private": {"source": "folder:mine"}},
        ["mine has no subfolders", "a subfolder of its own"],
    ),
    "folder without images": (
        lambda raw: (raw / "mine" / "cats").mkdir(parents=True),
        {"private": {"source": "folder:mine"}},
        ["cats has no images", "add some"],
    ),
    "folder with a text for an image": (
        lambda raw: [(raw / "mine" / "cats").mkdir(parents=True), (raw / "mine" / "cats" / "a.png").write_text("hi")],
        {"private": {"source": "folder:mine"}},
        ["a.png cannot be read", "replace or remove it"],
    ),
}


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
            done = CliRunner().invoke(kedro_run, ["--env=test", "--pipelines=hetero_digits", *arguments])
            assert not isinstance(done.exception, Exception), "kedro would print a traceback"
            return done.exit_code, done.output

        return command

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("hetero_digits.clinets=5", "There is no setting 'clinets' in hetero_digits; did you mean 'clients'?"),
            ("hetero_digits.training.learning_rate=-0.1", "hetero_digits.training.learning_rate is -0.1; it should be"),
            ("hetero_digits.training.learning_rate=nan", "hetero_digits.training.learning_rate is "),
            ("hetero_digits.methods.kt_pfl.roh=0.1", "did you mean 'rho'?"),
            ("hetero_digits.clients=0,hetero_digits.rounds=0", "hetero_digits.clients is 0; it should be"),
            (
                "rounds=3",
                "--params rounds=... names no experiment and no sweep; write the experiment first, as in ",
            ),
            (
                "hetero_digit.rounds=3",
                "--params hetero_digit=... names no experiment and no sweep; did you mean 'hetero_digits'?",
            ),
            ("hetero_cifar.rounds=0", "hetero_cifar.rounds is 0;"),  # another experiment, and still a mistake
            ("hetero_digits.public.batch=600", "lower public.batch to 539 or less"),
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
    """Two processes, side by side since each takes its time to start: exit code, one line on stderr, no traceback."""
    np.savez(project.folder / "data" / "01_raw" / "mine.npz", images=IMAGES, labels=LABELS[:-1])
    expected = {
        "hetero_digits.training.learning_rat=0.1": r"Error: .*'learning_rat' in hetero_digits\.training; did you mean",
        "hetero_digits.private.source=npz:mine.npz": r"Error: .*mine\.npz has 400 images and 399 labels: save as many",
    }
    started = {arguments: project.start("--pipelines=hetero_digits", "--params", arguments) for arguments in expected}
    with contextlib.ExitStack() as stack:
        for process in started.values():
            stack.enter_context(process)
            stack.callback(process.kill)
        for arguments, process in started.items():
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 1, arguments
            assert output == ""
            assert "Traceback" not in errors
            assert re.search(rf"^{expected[arguments]}", errors, re.MULTILINE), errors
    assert project.written() == ["data/01_raw/mine.npz"]
