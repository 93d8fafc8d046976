"""The sentences of reports are in one file, tests/reports/prose.txt. ``make prose`` writes it after a new wording.

A test gives a text to the fixture `prose`, which compares it with the text of the file under the test's name. Numbers,
and which sentence appears, are asserted by the test itself.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from ktpfl_pipeline.reports.model import Content, Links, Notes, Picture, Settings, Table, Text

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS / "reports" / "prose.txt"
HEAD = "=== "
Prose = Callable[..., str]
_new = pytest.StashKey[dict[str, str]]()


def stored() -> dict[str, str]:
    """Return the texts of the file by the name of their test."""
    entries = FILE.read_text(encoding="utf-8").split(f"\n{HEAD}")[1:]
    return {name: text.strip("\n") for name, _, text in (entry.partition("\n") for entry in entries)}


@pytest.fixture
def prose(request: pytest.FixtureRequest) -> Prose:
    """Compare a text with the stored one, and return it. A test with several texts names them."""
    known, new = stored(), request.config.stash.setdefault(_new, {})

    def check(text: str, name: str = "") -> str:
        place = request.node.nodeid.removeprefix("tests/") + (name and f", {name}")
        if request.config.getoption("--write-prose"):
            assert new.setdefault(place, text) == text, "name the texts of one test"
        else:
            assert known.get(place) == text, f"{FILE.name} differs; `make prose` rewrites it"
        return text

    return check


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the texts of this session; those of test files that were not run stay."""
    if session.config.getoption("--write-prose"):
        ran = {str(item.path.relative_to(TESTS)) for item in session.items}
        kept = {name: text for name, text in stored().items() if name.partition("::")[0] not in ran}
        texts = sorted({**kept, **session.config.stash.get(_new, {})}.items())
        head = "The sentences of reports by the test that makes them. `make prose` writes this file.\n"
        FILE.write_text(head + "".join(f"\n{HEAD}{name}\n{text}\n" for name, text in texts), encoding="utf-8")


def words_of(report: Content) -> str:
    """Return all sentences of a report, with the headings of its sections and tables, and without their entries."""
    lines = [report.kind, report.title, report.summary, *report.facts]
    lines += [f"! {kind}: {text}" for kind, text in report.warnings.items()]
    lines += [f"* {tile.role}: {tile.title} {tile.value}, {tile.note}" for tile in report.tiles]
    for section in report.sections:
        lines.append(f"# {section.title}" + " (folded)" * section.folded)
        for block in section.blocks:
            match block:
                case Text(text) | Picture(caption=text):
                    lines.append(text)
                case Notes(entries):
                    lines += [f"- {term}: {text}" for term, text in entries.items()]
                case Table():
                    lines.append(" | ".join(block.headings))
                case Links() | Settings():
                    lines.append(f"({type(block).__name__.lower()})")
    return "\n".join(lines)
