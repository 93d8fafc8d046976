"""Writes which paper each method is from into docs/methods.md: ``python docs/generate/papers.py``.

A method's file opens with a sentence on it, and then names its paper: authors, title, where it appeared, link.
"""

import inspect
import re
from pathlib import Path
from sys import modules

from ktpfl_pipeline.methods import METHODS, find, title

DOCUMENT = Path(__file__).parents[1] / "methods.md"
BEGIN, END = "<!-- papers: generated -->\n", "<!-- end of papers -->\n"
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


def written(page: str) -> str:
    """Return the page with the table in its place."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", page, flags=re.S)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
