"""Tables of every setting and of the kinds of warnings, made from the source that declares them.

In a page, ``experiments``, ``augmentations``, ``sweeps``, ``tunings``, ``paper``, ``parts``, ``methods`` or
``warnings`` is written in a block named ``{settings}``.
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ktpfl_pipeline.config import schema, studies
from ktpfl_pipeline.core import recipe, validation
from ktpfl_pipeline.core import settings as groups_of_settings
from ktpfl_pipeline.core.augmentation import CHANGES
from ktpfl_pipeline.core.validation import Rule, default, meanings, plain, rules
from ktpfl_pipeline.core.warnings import KINDS
from ktpfl_pipeline.data import settings as data_settings
from ktpfl_pipeline.methods import METHODS, create, title


def allowed(rule: Rule) -> str:
    """Return what a setting may be; bounds that only exclude what a computer cannot hold are left out."""
    text = re.sub(r" from ([\d.]+) to (?:[\d,]{10,}|1e\+\d+)", r" of at least \1", str(rule))
    return re.sub(r" and at most 1e\+\d+", "", text)


def settings(kind: type, above: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Give of each setting of a group, and of the groups below it, path, what is allowed, default and meaning."""
    said = meanings(kind)
    for entry in dataclasses.fields(kind):
        rule, path = rules(kind)[entry.name], f"{above}{entry.name}"
        for group in rule.groups:
            yield from settings(group, f"{path}.")
        if not rule.groups:
            value = default(entry)
            shown = "required" if value is dataclasses.MISSING else written(plain(value))
            yield path, allowed(rule), shown, said.get(entry.name, "")


def written(value: Any) -> str:
    """Return a value as it is written in YAML."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


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
    if what == "warnings":
        return table(["warning", "what it says"], [[kind, meaning] for kind, meaning in KINDS.items()])
    if what == "methods":
        return "\n\n".join(map(hyperparameters, METHODS))
    kinds: dict[str, type] = {
        "experiments": schema.Experiment,
        "sweeps": studies.Sweep,
        "tunings": studies.Tune,
        "paper": studies.Paper,
        "parts": studies.Part,
    }
    if what == "augmentations":
        found = [each for name, kind in CHANGES.items() for each in settings(kind, f"{name}.")]
    else:
        found = list(settings(kinds[what]))
    groups: dict[str, list[list[str]]] = {}
    for path, allows, shown, meaning in found:
        group, _, rest = path.partition(".")
        escaped = re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "\\<", meaning)
        row = [anchored(path, what), escaped, allows, shown]
        groups.setdefault(group if rest else "", []).append(row)
    head = ["setting", "meaning", "allowed", "default"]
    ordered = sorted(groups.items(), key=lambda entry: bool(entry[0]))  # settings without a group first
    parts = [f"**{f'`{group}`' if group else 'Without a group'}**\n\n{table(head, rows)}" for group, rows in ordered]
    return "\n\n".join(parts if len(parts) > 1 or ordered[0][0] else [table(head, ordered[0][1])])


def anchored(path: str, what: str) -> str:
    """Return a setting as code with an address of its own, such as ``#experiments-training-learning-rate``."""
    address = re.sub(r"[^a-z0-9]+", "-", f"{what}-{path}".lower()).strip("-")
    return f"`{path}`{{#{address}}}"


class SettingsTable(SphinxDirective):
    """The tables of one kind of section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return them as the page would parse them."""
        for module in (schema, studies, groups_of_settings, recipe, data_settings, validation):
            self.env.note_dependency(str(module.__file__))
        return self.parse_text_to_nodes(page(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("settings", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
