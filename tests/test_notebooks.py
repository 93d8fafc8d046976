"""The notebooks and the documentation: their code runs, their links lead somewhere."""

import ast
import contextlib
import inspect
import io
import json
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import notebooks
import pytest
import torch
import toy
import yaml
from matplotlib.figure import Figure

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.data import sources

PROJECT = Path(__file__).parents[1]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
PAGES = sorted([*(PROJECT / "docs").glob("*.md"), *PROJECT.glob("*.md")])
GUIDE = PROJECT / "docs" / "adding_a_method.md"

# A fenced block of Python, and the file that it is meant for where the line above names one.
BLOCK = re.compile(r"(?:`src/(?P<module>[\w/]+)\.py`[^\n]*\n\n)?```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<file>[^)\s#]*)#?(?P<heading>[^)\s]*)\)")


NEAREST = '"""Nearest teacher'
PROMISES = (  # those that need nothing but a method and a federation
    "test_learns",
    "test_round_leaves_its_arguments_as_they_were",
    "test_exchanges_what_its_class_says",
    "test_an_absent_client_is_left_alone",
    "test_global_generators_stay_where_they_are",
    "test_a_client_that_diverges_and_is_skipped_was_not_sampled",
)


def block(beginning: str) -> str:
    """Return the guide's block of Python that begins so."""
    return next(
        found["code"] for found in BLOCK.finditer(GUIDE.read_text("utf-8")) if found["code"].startswith(beginning)
    )


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the guide's method into the package, and its line into the registry."""
    module = types.ModuleType("ktpfl_pipeline.methods.nearest")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block(NEAREST), GUIDE.name, "exec"), module.__dict__)
    (line,) = re.findall(r"^\+ *(\"nearest\".*)$", GUIDE.read_text("utf-8"), re.MULTILINE)
    ((name, preset),) = eval(f"{{{line}}}", {"Preset": methods.Preset}).items()
    monkeypatch.setitem(methods.METHODS, name, preset)
    monkeypatch.setitem(methods.ANY_ARCHITECTURES, name, preset)


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def by_name(path: Path) -> str:
    return path.stem


def test_there_are_four_notebooks() -> None:
    assert [by_name(path)[0] for path in NOTEBOOKS] == ["1", "2", "3", "4"]


def given(code: str, namespace: dict[str, Any], name: str) -> set[str]:
    """Run a cell as Jupyter does, but for its magic lines and with few rounds; return the kinds of what it gives."""
    quick = re.sub(r"\brounds=\d+", "rounds=2", re.sub(r"^%.*$", "", code, flags=re.MULTILINE))
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


class TestGuide:
    def test_its_python_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Block after block; a block that is meant for a file of the package is imported as that module."""
        monkeypatch.chdir(tmp_path)
        namespace: dict[str, Any] = {"__name__": "guide"}
        blocks = list(BLOCK.finditer(GUIDE.read_text("utf-8")))
        assert sum(block["module"] is not None for block in blocks) >= 2
        for block in blocks:
            where = namespace
            if block["module"]:
                module = types.ModuleType(block["module"].replace("/", "."))
                monkeypatch.setitem(sys.modules, module.__name__, module)
                where = module.__dict__
            exec(compile(block["code"], f"{GUIDE.name}: {block['module'] or 'a block'}", "exec"), where)

    def test_the_method_is_one_file_and_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With them it keeps the promises of every method, and joins the comparisons."""
        Contract = runpy.run_path(str(PROJECT / "tests" / "methods" / "test_contract.py"))["TestContract"]
        register(monkeypatch)
        method = methods.create("nearest", {"own": 0.4})
        for promise in PROMISES:
            getattr(Contract(), promise)(method, toy.federation())
        assert methods.title("nearest") == "Nearest teacher"
        assert "nearest" in methods.compared(one_architecture=False)
        with pytest.raises(InputError, match=r"^nearest\.own is 2\.0; it must lie between 0 and 1\.$"):
            methods.create("nearest", {"own": 2.0})

    def test_a_package_of_ones_own_needs_no_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Method, model and data source stand in conf/ by their dotted paths; the method runs as that of the line."""
        package = tmp_path / "src" / "my_package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for name, beginning in (("nearest", NEAREST), ("nets", '"""A wide multilayer'), ("sources", "from pathlib")):
            (package / f"{name}.py").write_text(block(beginning))
        monkeypatch.syspath_prepend(package.parent)
        (tmp_path / "mine.csv").write_text("3,0,10,20,255\n1,9,8,7,6\n")
        (given,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        section = yaml.safe_load(given)["hetero_digits"]
        section |= {"seeds": 0, "architectures": ["my_package.nets:wide_mlp"], "image": {"channels": 1, "size": 28}}
        section |= {"private": {"source": "my_package.sources:load:mine.csv"}, "public": {"source": "open_part"}}
        section |= {"partition": {"scheme": "two_labels"}}

        experiment = parsing.parse("hetero_digits", section)
        ((path, hyperparameters),) = experiment.methods.items()
        assert models.build(experiment.architectures[0], 1, 28, 10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
        assert sources.load(experiment.private.source, tmp_path).labels.tolist() == [3, 1]

        register(monkeypatch)
        one, other = parsing.create_method(path, hyperparameters), methods.create("nearest", hyperparameters)
        assert type(one) is not type(other)
        assert (methods.title(path), methods.slug(path)) == ("Nearest teacher", "my_package_nearest_Nearest")
        states = [engine.run(method, toy.federation(), engine.Schedule(2)).state for method in (one, other)]
        assert toy.same(*states)

    def test_the_operations_and_functions_it_names_exist(self) -> None:
        """With the arguments that it gives them."""
        prose = FENCE.sub("", GUIDE.read_text("utf-8"))
        operations = re.findall(r"`fed\.(\w+)\(([\w, .]*)\)`", prose)
        functions = re.findall(r"^\| `(\w+)\((fed, [\w, ]+)\)`", prose, re.MULTILINE)
        assert len(operations) > 8
        assert len(functions) == 3
        for owner, named in ((Federation, operations), (exchange, functions)):
            for name, arguments in named:
                known = [word for word in inspect.signature(getattr(owner, name)).parameters if word != "self"]
                given = [word for word in arguments.split(", ") if word not in ("", "...")]
                assert given == known[: len(given)], name
        for name in re.findall(r"`fed\.(\w+)", prose):
            assert hasattr(Federation, name), name

    def test_the_notebook_shows_the_same_method(self) -> None:
        blocks = BLOCK.finditer(GUIDE.read_text("utf-8"))
        method = next(block for block in blocks if "methods/" in (block["module"] or ""))
        shown = [source(cell).strip() for cell in cells(NOTEBOOKS[2], "code")]
        assert method["code"].strip() in shown


def text_of(page: Path) -> str:
    """Return what is read of a page, without its code."""
    if page.suffix == ".ipynb":
        return "\n".join(source(cell) for cell in cells(page, "markdown"))
    return FENCE.sub("", page.read_text("utf-8"))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in LINK.finditer(text_of(page)):
        target = page.parent / link["file"] if link["file"] else page
        if "://" not in link["file"] and (
            not target.exists() or (link["heading"] and link["heading"] not in headings(target))
        ):
            lost.append(link[0])
    assert lost == []
