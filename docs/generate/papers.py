"""Writes docs/reference/papers.md, which paper each method comes from: ``python docs/generate/papers.py``.

The docstring of a method's file names its paper after the first paragraph: authors, title, venue, link.
"""

import inspect
import re
from pathlib import Path
from sys import modules

from ktpfl_pipeline.methods import METHODS, find, title

DOCUMENT = Path(__file__).parents[1] / "reference" / "papers.md"
HEAD = """# The papers

The paper of each method. Local-only training has none; KT-pFL (joint) and KT-pFL (likelihood) are ours, based on
KT-pFL's. `python docs/generate/papers.py` writes this page from the docstrings of the methods.

"""
KT_PFL = "kt_pfl"


def paper(name: str) -> tuple[str, str] | None:
    """Return what the file of the method called `name` says of its paper, up to the link, and the link; or None."""
    told = inspect.getdoc(modules[find(name).kind.__module__]) or ""
    _, _, rest = told.partition("\n\n")
    found = re.match(r"([A-Z][^`]+?), (https://\S+?)[.,:;]?(?:\s|$)", " ".join(rest.split()))
    return (found[1], found[2]) if found else None


def table() -> str:
    """Return the table: a row for each paper, with all methods that are from it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in METHODS:
        known = paper(name) or (paper(KT_PFL) if name in ("sim_pfl", "topk_pfl") else None)
        if known:
            rows.setdefault(known, []).append(f"`{name}` ({title(name)})")
    lines = [f"| {', '.join(names)} | [{what}]({link}) |" for (what, link), names in rows.items()]
    return "\n".join(["| method | paper |", "| --- | --- |", *lines, ""])


def document() -> str:
    """Return the page."""
    return HEAD + table()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
