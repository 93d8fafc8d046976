"""What is said of a user's own module that cannot be imported."""

import ast
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from ktpfl_pipeline.core import extensions
from ktpfl_pipeline.core.errors import InputError

ADVICE = "put the package where Python finds it"
BROKEN_DATACLASS = """
from dataclasses import dataclass

@dataclass
class Wide:
    sizes: list = []
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.split(".")[0] == "users_own"]:
        monkeypatch.delitem(sys.modules, name)
    place = tmp_path / "users_own"
    place.mkdir()
    (place / "__init__.py").touch()
    return place


@pytest.mark.parametrize(
    ("source", "reason", "line"),
    [
        (BROKEN_DATACLASS, "ValueError: mutable default <class 'list'> for field sizes", 4),
        ("x = 1\ndef wide(:\n", "SyntaxError: invalid syntax", 2),
        ("\nimport no_such_package", "ModuleNotFoundError: No module named 'no_such_package'", 2),
        ("import users_own.missing", "ModuleNotFoundError: No module named 'users_own.missing'", 1),
        ("import torch\n\ntorch.zeros(2) @ torch.zeros(3)", "RuntimeError: ", 3),
    ],
    ids=["dataclass", "syntax", "another package", "another module", "in a library"],
)
def test_a_bug_in_the_users_module_is_told_with_its_line(package: Path, source: str, reason: str, line: int) -> None:
    (package / "nets.py").write_text(source)
    with pytest.raises(InputError) as caught:
        extensions.load("users_own.nets:Wide", "model")
    told = str(caught.value)
    assert told.startswith(f"The model 'users_own.nets:Wide' cannot be imported: its module raised {reason}")
    assert told.endswith(f"({package / 'nets.py'}, line {line}): correct it there.")
    assert ADVICE not in told


@pytest.mark.parametrize("path", ["users_own.nest:Wide", "no_such_package.nets:Wide", "users_own.nets.deeper:Wide"])
def test_a_module_that_there_is_not_is_a_wrong_path(package: Path, path: str) -> None:
    (package / "nets.py").touch()
    with pytest.raises(InputError, match=ADVICE):
        extensions.load(path, "model")


def test_an_error_in_a_run_is_told_with_the_users_own_line(package: Path) -> None:
    (package / "topk.py").write_text(
        "def double(number):\n    return number / 0\n\ndef call(function):\n    function()\n"
    )
    path = "users_own.topk:double"
    double, call = extensions.load(path, "method"), extensions.load("users_own.topk:call", "method")
    with (
        pytest.raises(InputError, match=r"^The method 'users_own.topk:double' raised ZeroDivisionError: .*, line 2\)"),
        extensions.own_errors(path, "method"),
    ):
        double(1)
    with pytest.raises(ZeroDivisionError), extensions.own_errors("fedavg", "method"):
        double(1)
    with pytest.raises(KeyError), extensions.own_errors(path, "method"):
        raise KeyError  # by a line of ours
    with pytest.raises(InputError, match=r"^ours$"), extensions.own_errors(path, "method"):
        call(_refuse)


def _refuse() -> None:
    raise InputError("ours")


def test_of_a_message_of_many_lines_the_first_is_told() -> None:
    assert (
        extensions.raised(RuntimeError("Sizes differ.\nBacktrace: ..."), "my_package.nets:Wide")
        == "RuntimeError: Sizes differ"
    )
    assert extensions.raised(KeyError(), "my_package.nets:Wide") == "KeyError"


def test_what_the_users_own_code_returned_is_called_by_its_type() -> None:
    values = [None, 1, OrderedDict(), torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)]
    said = ["None", "a int", "a collections.OrderedDict", "a tensor of (2, 3)", "a tensor of (2,) of int64"]
    assert [extensions.called(value) for value in values] == said


def test_packages_of_another_environment_on_the_path_are_libraries(tmp_path: Path) -> None:
    assert extensions.is_in_library(tmp_path / "venv/lib/python3.11/site-packages/torch/__init__.py")
    assert extensions.is_in_library(Path(torch.__file__))
    assert extensions.is_in_library(Path(ast.__file__))
    assert not extensions.is_in_library(tmp_path / "users_own/nets.py")
