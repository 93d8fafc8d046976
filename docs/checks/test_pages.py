"""The documentation: its Python runs, its commands are those of this project, its links lead somewhere."""

import inspect
import json
import re
import runpy
import shlex
import sys
import types
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import yaml
from kedro.config import OmegaConfigLoader
from project_copy import quick_yaml

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.config import inheritance, parsing, reading
from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.data import sources
from ktpfl_pipeline.pipeline_registry import DEFAULT, register_pipelines
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *PROJECT.glob("*.md"), *(PROJECT / "benchmarks").glob("*.md")])
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
GUIDE, MODEL, SOURCE = DOCS / "adding_a_method.md", DOCS / "how_to" / "own_model.md", DOCS / "how_to" / "own_source.md"

# A fenced block of Python, and the file that it is meant for where the line above names one.
BLOCK = re.compile(r"(?:`src/(?P<module>[\w/]+)\.py`[^\n]*\n\n)?```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<file>[^)\s#]*)#?(?P<heading>[^)\s]*)\)")
YAML = re.compile(r"```yaml\n# (?P<file>\S+\.yml)\n(?P<text>.*?)```", re.DOTALL)
COMMAND = re.compile(r"^kedro run\b.*$", re.MULTILINE)
NEAREST = '"""Nearest teacher'


def by_path(page: Path) -> str:
    return page.relative_to(PROJECT).as_posix()


def block(beginning: str, page: Path = GUIDE) -> str:
    """Return the page's block of Python that begins so."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return next(each["code"] for each in found if each["code"].startswith(beginning))


def called(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    """Call a function with those of its arguments that are known by name."""
    return function(**{name: known[name] for name in inspect.signature(function).parameters})


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the guide's method into the package, and its line into the registry."""
    module = types.ModuleType("ktpfl_pipeline.methods.nearest")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block(NEAREST), GUIDE.name, "exec"), module.__dict__)
    (line,) = re.findall(r"^\+ *(\"nearest\".*)$", GUIDE.read_text("utf-8"), re.MULTILINE)
    ((name, preset),) = eval(f"{{{line}}}", {"Preset": methods.Preset}).items()
    monkeypatch.setitem(methods.METHODS, name, preset)
    monkeypatch.setitem(methods.ANY_ARCHITECTURES, name, preset)


class TestGuide:
    @pytest.mark.parametrize("page", [GUIDE, MODEL, SOURCE, DOCS / "reference" / "api.md"], ids=by_path)
    def test_its_python_runs(self, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Block after block; a block that is meant for a file of the package is imported as that module."""
        monkeypatch.chdir(tmp_path)
        namespace: dict[str, Any] = {"__name__": "guide"}
        blocks = list(BLOCK.finditer(page.read_text("utf-8")))
        assert blocks
        for block in blocks:
            where = namespace
            if block["module"]:
                module = types.ModuleType(block["module"].replace("/", "."))
                monkeypatch.setitem(sys.modules, module.__name__, module)
                where = module.__dict__
            exec(compile(block["code"], f"{page.name}: {block['module'] or 'a block'}", "exec"), where)

    def test_the_method_is_one_file_and_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With them it keeps the contract of every method, and joins the comparisons."""
        contract = runpy.run_path(str(PROJECT / "tests" / "methods" / "test_contract.py"))
        register(monkeypatch)
        method, training = methods.create("nearest", {"own": 0.4}), contract["TRAINING"]
        given = {"name": "nearest", "method": method, "training": training}
        (kept := tmp_path / "kept").mkdir()
        straight, rounds = called(contract["recorded"], {**given, "kept": kept})
        made = partial(toy.federation, training=training)
        for name, check in inspect.getmembers(contract["TestContract"](), inspect.ismethod):
            (place := tmp_path / name).mkdir()
            exact = made(3, architectures=("conv", "linear"), dtype="float64")
            runs = {"straight": straight, "rounds": rounds, "kept": kept, "tmp_path": place}
            called(check, {**given, **runs, "fed": made(), "three": made(3), "exact": exact})
        assert methods.title("nearest") == "Nearest teacher"
        assert "nearest" in methods.compared(one_architecture=False)
        with pytest.raises(InputError, match=r"^nearest\.own is 2\.0; it must be a number from 0 to 1\.$"):
            methods.create("nearest", {"own": 2.0})

    def test_a_package_of_ones_own_needs_no_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Method, model and data source stand in conf/ by their dotted paths; the method runs as that of the line."""
        package = tmp_path / "src" / "my_package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "nearest.py").write_text(block(NEAREST))
        (package / "nets.py").write_text(block('"""A wide multilayer', MODEL))
        (package / "sources.py").write_text(block("from pathlib", SOURCE))
        monkeypatch.syspath_prepend(package.parent)
        (tmp_path / "mine.csv").write_text("3,0,10,20,255\n1,9,8,7,6\n")
        (written,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        section = yaml.safe_load(written)["hetero_digits"]
        section |= {"seeds": 0, "architectures": ["my_package.nets:wide_mlp"], "image": {"channels": 1, "size": 28}}
        section |= {"private": {"source": "my_package.sources:load:mine.csv"}, "public": {"source": "open_part"}}
        section |= {"partition": {"scheme": "two_labels"}}

        experiment = parsing.parse("hetero_digits", section)
        ((path, hyperparameters),) = experiment.methods.items()
        assert models.build(experiment.architectures[0], (1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
        assert sources.load(experiment.private.source, tmp_path).labels.tolist() == [3, 1]

        register(monkeypatch)
        one, other = methods.create(path, hyperparameters), methods.create("nearest", hyperparameters)
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
        assert len(functions) == 4
        for owner, named in ((Federation, operations), (exchange, functions)):
            for name, arguments in named:
                known = [word for word in inspect.signature(getattr(owner, name)).parameters if word != "self"]
                given = [word for word in arguments.split(", ") if word not in ("", "...")]
                assert given == known[: len(given)], name
        for name in re.findall(r"`fed\.(\w+)", prose):
            assert hasattr(Federation, name), name


@cache
def pipelines(environment: str) -> set[str]:
    """Return the names of an environment's pipelines, which are those of its sections."""
    reading.remember(parsing.merged(configured(environment), {}))
    return set(register_pipelines())


def sections_of(page: Path) -> dict[str, Any]:
    """Return the sections that a page tells its reader to write into files of parameters under conf/."""
    files = [found for found in YAML.finditer(page.read_text("utf-8")) if Path(found["file"]).name.startswith("param")]
    return {name: section for found in files for name, section in yaml.safe_load(found["text"]).items()}


def commands() -> Iterator[Any]:
    """Yield every `kedro run` in a block of code, with its page."""
    for page in PAGES:
        for fence in FENCE.findall(page.read_text("utf-8")):
            for line in COMMAND.findall(fence):
                yield pytest.param(page, line, id=f"{by_path(page)}: {line}")


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documentation writes, such as my_run.yml."""
    folder = tmp_path_factory.mktemp("configuration")
    for page in PAGES:
        for found in YAML.finditer(page.read_text("utf-8")):
            if "/" not in found["file"]:
                (folder / found["file"]).write_text(found["text"])
    return folder


@cache
def configured(environment: str) -> dict[str, Any]:
    """Return the parameters of an environment."""
    assert (PROJECT / "conf" / environment).is_dir(), environment
    arguments = {**CONFIG_LOADER_ARGS, "default_run_env": "base"}  # conf/local is the reader's own
    with quick_yaml():
        return dict(OmegaConfigLoader(str(PROJECT / "conf"), env=environment, **arguments)["parameters"])


def related(names: Collection[str], sections: dict[str, Any]) -> set[str]:
    """Return sections of these names, and the experiments that sweeps, tunings and the paper's parts among them run."""
    experiments = (sections[name].get("experiment", name.removeprefix("tune_")) for name in names)
    parts = [part for name in names for part in sections[name].get("parts", {}).values() if part]  # the paper's
    return {*names, *experiments, *(each for part in parts for each in part["experiments"])}


def asked(names: Collection[str], sections: dict[str, Any]) -> Collection[str]:
    """Return the names of pipelines, or that of the pipeline which runs if none is named."""
    return names or [next(name for name in DEFAULT if name.removeprefix("compare_") in sections)]


def merged(
    environment: str | None, parameters: dict[str, Any], written: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return all sections of an environment with these parameters, and with what is `written` into conf/."""
    return parsing.merged(inheritance.deep_merge(configured(environment or "base"), written or {}), parameters)


def check(sections: dict[str, Any], names: Collection[str]) -> None:
    """Check all sections as a run of these pipelines does."""
    parsing.check(sections)
    run = {
        section for name in asked(names, sections) for section in (name, *map(name.removeprefix, ("compare_", "tune_")))
    }
    list(parsing.used(run & sections.keys(), sections))


def unused(sections: dict[str, Any], names: Collection[str], parameters: dict[str, Any]) -> set[str]:
    """Return the sections that are given parameters, although the pipelines of these names do not run them."""
    run = [name.removeprefix("compare_") for name in asked(names, sections)]
    given = {name for name in parameters if not name.startswith("_")}
    return given - related([name for name in run if name in sections], sections)


class TestCommands:
    @pytest.mark.parametrize(("page", "line"), commands())
    def test_is_one_of_this_project(
        self, page: Path, line: str, configuration: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kedro's command line reads it, its pipelines exist, and its settings may be set."""
        from kedro.framework.cli.project import run

        register(monkeypatch)  # the guide's commands are given with its method in place
        monkeypatch.chdir(configuration)
        given = run.make_context("run", shlex.split(line, comments=True)[2:]).params
        names = [given["pipeline"]] if given.get("pipeline") else given["pipelines"] or []
        known = configured(given["env"] or "base")
        written = {name: section for name, section in sections_of(page).items() if name not in known}
        own = {f"{prefix}{name}" for name in written for prefix in ("", "compare_", "tune_")}
        assert set(names) <= pipelines(given["env"] or "base") | own
        sections = merged(given["env"], given["params"], written)
        check(sections, names)
        assert unused(sections, names, given["params"]) == set()

    @pytest.mark.parametrize("page", [page for page in PAGES if "# conf/" in page.read_text("utf-8")], ids=by_path)
    def test_its_sections_are_allowed_in_conf(self, page: Path) -> None:
        written = sections_of(page)
        check(merged(None, {}, written), [name for name in written if not name.startswith("_")])

    def test_a_wrong_command_is_noticed(self) -> None:
        with pytest.raises(InputError, match="did you mean 'rounds'"):
            check(merged("test", {"hetero_digits": {"round": 3}}), [])
        with pytest.raises(InputError, match="new clients are evaluated among benign clients"):
            check(merged("test", {"hetero_digits": {"newcomers": 0.2, "adversaries": {"share": 0.2}}}), [])
        for parameters, names, expected in (
            ({"hetero_cifar": {"rounds": 3}}, [], {"hetero_cifar"}),
            ({"hetero_digits": {"rounds": 3}}, ["sweep_rho"], set()),
        ):
            assert unused(merged(None, parameters), names, parameters) == expected


@pytest.mark.parametrize("kind", ["experiments", "augmentations", "sweeps", "tunings", "paper", "parts"])
def test_every_setting_has_a_meaning_in_the_reference(kind: str) -> None:
    table = runpy.run_path(str(DOCS / "_ext" / "settings_reference.py"))["page"](kind)
    assert f"{{settings}} {kind}\n" in (DOCS / "reference" / "settings.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^`]*`)\{#[^}]*\} \| (.*?) \|", table, re.MULTILINE)
    assert rows
    addresses = re.findall(r"\{#([^}]*)\}", table)
    assert len(addresses) == len(set(addresses)) == len(rows), "each setting has an address of its own"
    assert [setting for setting, meaning in rows if not meaning.strip()] == []


def text_of(page: Path) -> str:
    """Return what is read of a page, without its code."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return FENCE.sub("", text)


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_relative_links_lead_somewhere() -> None:
    links = [(page, link) for page in (*PAGES, *NOTEBOOKS) for link in LINK.finditer(text_of(page))]
    assert len(links) > 100
    lost = []
    for page, link in links:
        target = page.parent / link["file"] if link["file"] else page
        if "://" not in link["file"] and (
            not target.exists() or (link["heading"] and link["heading"] not in headings(target))
        ):
            lost.append((by_path(page), link[0]))
    assert lost == []
