"""The notebooks run, and show the method of the guide."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
GUIDE = PROJECT / "docs" / "adding_a_method.md"


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def by_name(path: Path) -> str:
    return path.stem


def test_there_are_three_notebooks() -> None:
    assert [by_name(path)[0] for path in NOTEBOOKS] == ["1", "2", "3"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
class TestNotebook:
    def test_stores_no_outputs(self, notebook: Path) -> None:
        for cell in cells(notebook, "code"):
            assert cell["outputs"] == [], source(cell)
            assert cell["execution_count"] is None, source(cell)

    def test_is_small(self, notebook: Path) -> None:
        assert 6 <= len(cells(notebook, "code") + cells(notebook, "markdown")) <= 12

    def test_runs(self, notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """From top to bottom, in whatever folder; lines for Jupyter alone, such as %matplotlib, are left out."""
        monkeypatch.chdir(tmp_path)
        namespace: dict[str, Any] = {"__name__": "notebook"}
        for place, cell in enumerate(cells(notebook, "code"), start=1):
            code = re.sub(r"^%.*$", "", source(cell), flags=re.MULTILINE)
            exec(compile(code, f"{notebook.name}, code cell {place}", "exec"), namespace)
        assert list(tmp_path.iterdir()) == []  # what a reader did not ask for is not left behind


def test_the_notebook_shows_the_same_method() -> None:
    page = GUIDE.read_text("utf-8")
    method = re.search(r"methods/nearest\.py`:\n\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert method
    assert method[1].strip() in [source(cell).strip() for cell in cells(NOTEBOOKS[2], "code")]
