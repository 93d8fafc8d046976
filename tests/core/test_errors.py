import pickle
from pathlib import Path

import pytest

from ktpfl_pipeline.core import errors
from ktpfl_pipeline.core.errors import ClientsMissing, DivergedError, InputError, NotCoveredError, plural, unwritable


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "store postgresql://mlflow:s3cret-pw@127.0.0.1:5999/mlflow (x)",
            "store postgresql://mlflow:***@127.0.0.1:5999/mlflow (x)",
        ),
        ("http://a:b@c and http://d:e/f@g", "http://a:***@c and http://d:***@g"),
        ("http://127.0.0.1:5000/x", "http://127.0.0.1:5000/x"),
    ],
)
def test_passwords_in_addresses_are_masked(message: str, shown: str) -> None:
    assert str(InputError(message)) == shown


def test_a_link_to_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "reports").symlink_to("unmounted")
    (tmp_path / "whole").mkdir()
    lost = FileExistsError(17, "File exists", str(tmp_path / "reports"))
    assert f"{tmp_path}/reports is a link to unmounted, which does not exist." in str(unwritable("The report", lost))
    full = OSError(28, "No space left on device", str(tmp_path / "whole" / "x"))
    assert "(No space left on device): free some space" in str(unwritable("The report", full))


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(OSError, match="models") as caught:
        (tmp_path / "models" / "seed-0").mkdir()
    assert f"{tmp_path}/models is a file, and must be a folder. Move" in str(unwritable("The model", caught.value))


@pytest.mark.parametrize(
    "error",
    [InputError("x"), NotCoveredError("predicts"), ClientsMissing({3: "gave no answer"}), DivergedError({1: "nan"}, 2)],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: InputError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), vars(there)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("number", "word", "said"),
    [
        (1, "sample", "1 sample"),
        (0, "sample", "0 samples"),
        (2000, "client id", "2,000 client ids"),
        (2, "class", "2 classes"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(number: int, word: str, said: str) -> None:
    assert plural(number, word) == said


@pytest.mark.parametrize("pip", [True, False], ids=["pip", "uv"])
def test_the_command_that_installs_packages_suits_the_environment(pip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv makes environments without pip."""
    there = {"pip": pip, "sklearn": True, "timm": False, "opacus": False}
    monkeypatch.setattr(errors, "find_spec", lambda name: name if there[name] else None)
    monkeypatch.setattr("sys.executable", "/my own/python")
    errors.check_installed("a model", "scikit-learn")
    with pytest.raises(InputError) as raised:
        errors.check_installed("This", "scikit-learn", "timm", "opacus", otherwise="leave it out")
    command = "'/my own/python' -m pip install" if pip else "uv pip install --python '/my own/python'"
    assert str(raised.value) == f"This needs timm opacus, not installed: run {command} timm opacus, or leave it out."
