"""The notebooks run, their outputs are those of their code, and they show the method of the guide."""

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import notebooks
import pytest
from matplotlib.figure import Figure

PROJECT = Path(__file__).parents[2]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
GUIDE = PROJECT / "docs" / "adding_a_method.md"


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def by_name(path: Path) -> str:
    return path.stem


def test_there_are_four_notebooks() -> None:
    assert [by_name(path)[0] for path in NOTEBOOKS] == ["1", "2", "3", "4"]


def given(code: str, namespace: dict[str, Any], name: str) -> set[str]:
    """Run a cell as Jupyter does, but for its magic lines and with one round; return the kinds of what it gives."""
    quick = re.sub(r"\brounds=\d+", "rounds=1", re.sub(r"^%.*$", "", code, flags=re.MULTILINE))
    statements = ast.parse(quick).body
    last = statements.pop() if isinstance(statements[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    kinds = {"text"} if printed.getvalue() else set()
    return kinds if value is None else {*kinds, "picture" if isinstance(value, Figure) else "value"}


def stored(cell: dict[str, Any]) -> set[str]:
    """Return the kinds of a cell's outputs; a message on the error stream is none of them, and so is wrong."""
    kinds = set()
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            kinds.add("text" if output["name"] == "stdout" else output["name"])
        elif output["output_type"] == "error":
            kinds.add("error")
        else:
            kinds.add("picture" if "image/png" in output["data"] else "value")
    return kinds


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
class TestNotebook:
    def test_outputs_are_of_this_code(self, notebook: Path) -> None:
        content = json.loads(notebook.read_text("utf-8"))
        command = f"python docs/generate/notebooks.py notebooks/{notebook.name}"
        assert content["metadata"]["executed"] == notebooks.digest(content), f"its code changed: {command}"
        counts = [cell["execution_count"] for cell in cells(notebook, "code")]
        assert counts == list(range(1, len(counts) + 1))

    def test_is_small(self, notebook: Path) -> None:
        assert 6 <= len(cells(notebook, "code") + cells(notebook, "markdown")) <= 12
        assert notebook.stat().st_size < 300_000

    def test_tells_nothing_of_the_machine(self, notebook: Path) -> None:
        outputs = json.dumps([cell["outputs"] for cell in cells(notebook, "code")])
        assert not re.search(r"(?<![\w+/])/(home|root|tmp|usr|work|Users)/|\\\\Users", outputs)

    @pytest.mark.usefixtures("blank_figures")
    def test_runs_and_gives_what_is_stored(
        self, notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From top to bottom, in whatever folder; numbers may differ by machine, kinds of outputs may not."""
        monkeypatch.chdir(tmp_path)
        namespace: dict[str, Any] = {"__name__": "notebook"}
        for place, cell in enumerate(cells(notebook, "code"), start=1):
            found = given(source(cell), namespace, f"{notebook.name}, code cell {place}")
            assert found == stored(cell), source(cell)
        assert list(tmp_path.iterdir()) == []  # what a reader did not ask for is not left behind


def test_the_notebook_shows_the_same_method() -> None:
    page = GUIDE.read_text("utf-8")
    method = re.search(r"methods/nearest\.py`:\n\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert method
    assert method[1].strip() in [source(cell).strip() for cell in cells(NOTEBOOKS[2], "code")]
