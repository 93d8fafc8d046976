"""Keeps a number and its spread, and an interval, on one line of a table: non-breaking spaces, on the site alone."""

import re
from typing import Any

from sphinx.application import Sphinx

SPREAD = re.compile(r"(?<=\d) ± (?=\d)")
INTERVAL = re.compile(r"(\[[−+]?[\d.]+), (?=[−+]?[\d.]+\])")


def unbroken(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the spaces in the rows of a page's tables."""
    lines = source[0].split("\n")
    source[0] = "\n".join(_row(line) if line.startswith("| ") else line for line in lines)


def _row(line: str) -> str:
    return INTERVAL.sub("\\1,\u00a0", SPREAD.sub("\u00a0±\u00a0", line))


def setup(app: Sphinx) -> dict[str, Any]:
    """Act on every page when it is read."""
    app.connect("source-read", unbroken)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
