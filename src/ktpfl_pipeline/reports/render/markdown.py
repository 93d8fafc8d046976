"""A report as Markdown, whose tables are aligned so that the source is readable too."""

from collections.abc import Mapping, Sequence

from ktpfl_pipeline.reports.model import Block, Content, Links, Notes, Picture, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, Number

_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "$*`<[]"})
"""Characters in names that Markdown would read as mathematics, emphasis, code, HTML or a link."""


def document(report: Content) -> str:
    warned = "\n".join(f"> - **{kind}:** {text.translate(_SIGNS)}" for kind, text in report.warnings.items())
    parts = [f"# {_plain(report.title)}", warned, f"**{_plain(report.summary)}**", _plain(" · ".join(report.facts))]
    parts.append("\n".join(f"- {what}: `{told}`" for what, told in report.made.items() if told))
    for section in report.sections:
        parts += [f"## {_plain(section.title)}" if section.title else "", *map(_block, section.blocks)]
        files = ", ".join(f"[{name}]({name})" for name in section.files if name in report.data)
        parts.append(f"The numbers, with their runs: {files}" if files else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return _plain(text)
        case Notes(entries):
            return "\n".join(f"- *{_plain(term)}:* {_plain(text)}" for term, text in entries.items())
        case Links(addresses):
            return "\n".join(f"- [{title.translate(_SIGNS)}]({address})" for title, address in addresses.items())
        case Settings(groups):
            return "\n".join(["```yaml", *(line for group in groups.items() for line in _group(*group)), "```"])
        case Picture(name, _, caption):
            alternative = _plain(block.alternative.replace("[", "(").replace("]", ")"))
            return f"![{alternative}](figures/{name}.svg)\n\n{_plain(caption)}"
        case Table():
            return table(block)


def _plain(text: str) -> str:
    """Return a sentence in which no name is read as a link or as HTML; brackets of intervals stay as they are."""
    return text.replace("](", r"]\(").replace("<", r"\<")


def _group(title: str, values: Mapping[str, str]) -> list[str]:
    lines = [f"{'  ' * bool(title)}{name}: {value}" for name, value in values.items()]
    return [f"{title}:", *lines] if title and lines else lines


def table(given: Table) -> str:
    """Return a table in GitHub's Markdown."""
    rows: list[Sequence[Entry]] = [given.headings, *given.entries]
    written = [[entry(each).replace("|", r"\|") for each in row] for row in rows]
    widths = [max(3, *map(len, column)) for column in zip(*written, strict=True)]
    lines = [
        [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
        for cells in written
    ]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def entry(given: Entry) -> str:
    """Return an entry of a table. A `bold` number is bold: ``**96.9** ± 0.3``."""
    if not isinstance(given, Number):
        return NONE if given is None else given.translate(_SIGNS)
    return f"**{given.main}** {given.beside}".rstrip() if given.bold else str(given)
