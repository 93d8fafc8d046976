"""Tables of every setting: types and bounds from config/, meanings from the comments of conf/base.

In a page, ``experiments``, ``augmentations``, ``sweeps``, ``tunings``, ``paper``, ``parts`` or ``methods`` stands in a
block named ``{settings}``.
"""

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ktpfl_pipeline.config import augmentations, schema, studies
from ktpfl_pipeline.methods import METHODS, create, title

BASE = Path(__file__).parents[2] / "conf" / "base"
BLOCKS = ("_experiment", "_hetero")
"""Sections whose settings are an experiment's; those of others stand below their names."""
LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+):[^#]*(?:#(?P<comment>.*))?$")
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
HUGE = 1e6


def comments(file: Path) -> dict[str, str]:
    """Return the comment of each setting of a file that has one, by dotted path."""
    found: dict[str, str] = {}
    path: list[str] = []
    last = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if last and re.fullmatch(r" {8,}#.*", line):
            found[last] += f" {line.strip(' #')}"
        elif given := LINE.match(line):
            path = [*path[: len(given["indent"]) // 2], given["name"]]
            block, *rest = path
            below = [] if block in BLOCKS else [block]
            last = ".".join([*below, *rest]) if rest and given["comment"] else ""
            if last and last not in found:
                found[last] = given["comment"].strip()
    return found


def allowed(field: dict[str, Any]) -> str:
    """Return what a setting may be, from its JSON schema."""
    if "anyOf" in field:
        return " or ".join(allowed(each) for each in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {allowed(field['items'])}"
    if field.get("type") == "boolean":
        return "`true`, `false`"
    kind = {"integer": "whole number", "number": "number", "string": "text", "null": "`null`", "object": "mapping"}
    bounds = [f"{sign} {field[key]:g}" for key, sign in BOUNDS.items() if key in field and abs(field[key]) < HUGE]
    return " ".join([kind.get(field.get("type", ""), "see its meaning"), ", ".join(bounds)]).strip()


def settings(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str, str]]:
    """Give of each setting of a model, and of the groups below it, its path, what is allowed, and its default."""
    form = model.model_json_schema(mode="validation")
    for name, field in model.model_fields.items():
        path = f"{above}{name}"
        below = groups(field)
        for group in below:
            yield from settings(group, f"{path}.")
        if not below:
            default = "required" if field.is_required() else written(field.default)
            yield path, allowed(form["properties"][name]), default


def groups(field: FieldInfo) -> list[type[BaseModel]]:
    """Return the group of settings that a field is; none where it is a setting itself."""
    kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return [each for each in kinds if inspect.isclass(each) and issubclass(each, BaseModel)]


def written(value: Any) -> str:
    """Return a value as it is written in YAML."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def meanings(method: type) -> dict[str, str]:
    """Return what a method's docstrings say of its hyperparameters."""
    found: dict[str, str] = {}
    for each in reversed(method.__mro__):
        section = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", inspect.cleandoc(each.__doc__ or ""), re.MULTILINE)
        if section:
            for name, meaning in re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", section[1], re.MULTILINE):
                found[name] = " ".join(meaning.split())
    return found


def hyperparameters(name: str) -> str:
    """Return a method's title and the table of its hyperparameters."""
    method = create(name, {})
    known = meanings(type(method))
    values = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    rows = [[f"`{key}`", written(value), known.get(key, "")] for key, value in values.items()]
    given = table(["setting", "default", "meaning"], rows) if rows else "Nothing to set."
    return f"**{title(name)}**, `{name}`\n\n{given}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(what: str) -> str:
    """Return the tables of one kind of section, in Markdown."""
    if what == "methods":
        return "\n\n".join(map(hyperparameters, METHODS))
    model, file = {
        "experiments": (schema.Experiment, "parameters.yml"),
        "augmentations": (augmentations.Change, "parameters.yml"),
        "sweeps": (studies.Sweep, "parameters_sweep.yml"),
        "tunings": (studies.Tune, "parameters_tune.yml"),
        "paper": (studies.Paper, "parameters_paper.yml"),
        "parts": (studies.Part, "parameters_paper.yml"),
    }[what]
    said = meanings(model) | comments(BASE / file)
    if what == "augmentations":
        said = {name: str(kind.__doc__) for name, field in model.model_fields.items() for kind in groups(field)}
    elif what != "experiments":  # each stands in a section of another name there
        said = {path.rpartition(".")[2]: comment for path, comment in said.items()}
    rows = []
    for path, allows, default in settings(model):
        meaning = said.get(path) or said.get(path.rpartition(".")[0], "")  # its own, or that of its group
        rows.append([f"`{path}`", allows, default, meaning.replace("<", "\\<")])
    return table(["setting", "allowed", "default", "meaning"], rows)


class SettingsTable(SphinxDirective):
    """The tables of one kind of section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return them as the page would parse them."""
        for file in (schema.__file__, studies.__file__, augmentations.__file__, *BASE.glob("parameters_*.yml")):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(page(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("settings", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
