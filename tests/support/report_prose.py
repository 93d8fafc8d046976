"""The sentences of reports are in one file, tests/reports/prose.txt. ``make prose`` writes it after a new wording.

A test gives a text to the fixture `prose`, which compares it with the text of the file under the test's name. A test
fails if it leaves out one of its texts in the file. The test itself asserts numbers, directions ("above"), and which
sentence appears.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from ktpfl_pipeline.reports.model import Content, Links, Notes, Picture, Settings, Table, Text

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS / "reports" / "prose.txt"
HEAD = "=== "
Prose = Callable[..., str]
_known = pytest.StashKey[dict[str, str]]()
_new = pytest.StashKey[dict[str, str]]()
_passed = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the file, which no test changes otherwise."""
    parser.addoption(
        "--write-prose", action="store_true", help=f"write {FILE.name} instead of comparing, if all tests pass"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the texts once, because each test asks for them."""
    config.stash[_known] = stored()


def stored() -> dict[str, str]:
    """Return the texts of the file by the name of their test."""
    entries = FILE.read_text(encoding="utf-8").split(f"\n{HEAD}")[1:]
    return {name: text.strip("\n") for name, _, text in (entry.partition("\n") for entry in entries)}


def name_of(test: pytest.Item) -> str:
    """Return the name of a test's text; of several texts, it is the part before the comma."""
    return test.nodeid.removeprefix("tests/")


def names_of(test: str, names: Iterable[str]) -> set[str]:
    """Return those of these names of texts that belong to a test."""
    return {name for name in names if name == test or name.startswith(f"{test}, ")}


def has_test(name: str) -> bool:
    """Return whether the file of a text's test still has its class and its function."""
    file, *parts = name.split("::")
    source = (TESTS / file).read_text(encoding="utf-8") if (TESTS / file).is_file() else ""
    return {re.split(r"\W", part)[0] for part in parts} <= {*re.findall(r"(?:class|def) (\w+)", source)}


@pytest.fixture
def prose(request: pytest.FixtureRequest) -> Prose:
    """Compare a text with the stored one, and return it. A test with several texts names them."""
    known, new = request.config.stash[_known], request.config.stash.setdefault(_new, {})

    def check(text: str, name: str = "") -> str:
        place = name_of(request.node) + (name and f", {name}")
        assert new.setdefault(place, text) == text, "name the texts of one test"
        if not request.config.getoption("--write-prose"):
            assert known.get(place) == text, f"{FILE.name} differs; `make prose` rewrites it"
        return text

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Let a test fail that did not give all of its stored texts."""
    yield
    item.config.stash.setdefault(_passed, []).append(name_of(item))
    left_out = names_of(name_of(item), item.config.stash[_known]) - item.config.stash.get(_new, {}).keys()
    if left_out and not item.config.getoption("--write-prose"):
        pytest.fail(f"{FILE.name} has texts that the test did not compare: {sorted(left_out)}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the texts of the tests that ran, if no test failed. Texts of other tests stay while these tests exist."""
    if session.config.getoption("--write-prose") and exitstatus == pytest.ExitCode.OK:
        known = session.config.stash[_known]
        replaced = {name for test in session.config.stash.get(_passed, []) for name in names_of(test, known)}
        kept = {name: text for name, text in known.items() if name not in replaced and has_test(name)}
        texts = sorted({**kept, **session.config.stash.get(_new, {})}.items())
        head = "The sentences of reports by the test that makes them. `make prose` writes this file.\n"
        FILE.write_text(head + "".join(f"\n{HEAD}{name}\n{text}\n" for name, text in texts), encoding="utf-8")


def words_of(report: Content) -> str:
    """Return the title, summary, facts, warnings and tiles of a report, and the words of its sections.

    Of a table, these are the headings; of links and settings, only that they are there. The words of a table's entries,
    of its caption in LaTeX, and of the terminal are left out.
    """
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
