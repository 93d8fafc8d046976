"""Writes docs/catalogue.md, every method with its idea and its paper, and README's table of methods.

    python docs/generate/papers.py

Idea, exchange and paper come from the source: the first line of a method's class, its attributes, and the docstring of
its file, which names the paper after the first paragraph: authors, title, venue, link.
"""

import inspect
import re
from pathlib import Path
from sys import modules

from ktpfl_pipeline.methods import ANY_ARCHITECTURES, METHODS, find, title

ROOT = Path(__file__).parents[2]
DOCUMENT, README = ROOT / "docs" / "catalogue.md", ROOT / "README.md"
FORMULAS = (
    "kt_pfl_variants",
    *(f"methods_{kind}" for kind in ("predictions", "features", "parameters", "layers")),
    "kt_pfl",
)
"""The pages with formulas, in the order in which a method is looked for."""
MARK = "<!-- python docs/generate/papers.py -->\n"
"""What stands above README's table."""
KT_PFL = "kt_pfl"
HEAD = """# Catalogue of methods

Every method by its name in `conf/`, with its key idea, what clients and the server exchange, and its paper. *Public*:
needs public samples. † fits on the clients' validation samples; ‡ is measured [after local training](results.md).
`python docs/generate/papers.py` writes this page from the source. [The methods](methods.md) states what all share.

- **Several architectures, and public samples:** start with `fedmd`, `kt_pfl` and `feddf`, next to `local`.
- **Several architectures, no public samples:** `fedapen`, `fedproto`, `lg_fedavg`, `fml`.
- **One architecture:** `fedavg_ft`, `fedrep`, `ditto`, `kt_pfl_params`.
- **Baselines that must not be missing:** `local`, and `local_matched` (`local_5x` with one architecture).
"""
GROUPS = {
    "Several architectures": lambda name: name in ANY_ARCHITECTURES,
    "One architecture": lambda name: name not in ANY_ARCHITECTURES,
}
KINDS = {
    "predictions on public data": lambda kind: public(kind) and not kind.one_architecture,
    "prototypes, heads or small models": lambda kind: not public(kind) and not kind.one_architecture,
    "models of one architecture": lambda kind: kind.one_architecture,
}
"""The rows of README's table."""


def public(kind: type) -> bool:
    """Return whether a method needs public samples."""
    return "predictions" in kind.exchanges or kind.needs_public


def paper(name: str) -> tuple[str, str] | None:
    """Return what the file of the method called `name` says of its paper, up to the link, and the link; or None."""
    told = inspect.getdoc(modules[find(name).kind.__module__]) or ""
    _, _, rest = told.partition("\n\n")
    found = re.match(r"([A-Z][^`]+?), (https://\S+?)[.,:;]?(?:\s|$)", " ".join(rest.split()))
    if found:
        return found[1], found[2]
    return paper(KT_PFL) if name in ("sim_pfl", "topk_pfl") else None


def year(cited: str) -> str:
    """Return the year of a citation: that of its venue, which follows the title."""
    return re.findall(r"\b(?:19|20)\d\d\b", cited)[0]


def short(cited: str) -> str:
    """Return a citation by its first author and year: ``Zhang et al. 2021``."""
    authors = cited.partition(":")[0].split(", ")
    others = "" if len(authors) == 1 else f" and {authors[1]}" if len(authors) == 2 else " et al."
    return f"{authors[0]}{others} {year(cited)}"


def formulas(name: str) -> str:
    """Return the link to the section with a method's formulas, which its heading names."""
    base = re.sub(r" \((?!parameters|joint|likelihood).*", "", title(name))
    wanted = {base, *([f"{base} training"] if base == "Local-only" else [])}
    for page in FORMULAS:
        file = ROOT / "docs" / f"{page}.md"
        for heading in re.findall(r"^## (.*)$", file.read_text("utf-8"), re.MULTILINE) if file.exists() else ():
            if wanted & {heading, *re.split(", | and ", heading)}:
                anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                return f"{page}.md#{anchor}"
    return f"{KT_PFL}.md"


def row(name: str) -> str:
    """Return a method's row of the catalogue."""
    kind = find(name).kind
    first = next(each for each in METHODS if find(each).kind is kind)
    told = (inspect.getdoc(kind) or "").split("\n")[0].partition(": ")[2]
    idea = told if first == name else f"`{first}` with other hyperparameters."
    marks = "†" * kind.fits_validation + "‡" * kind.trained_last
    cited = paper(name)
    source = f"[{short(cited[0])}]({cited[1]})" if cited else "ours" if kind.exchanges else ""
    exchanged = ", ".join(sorted(kind.exchanges)) or "nothing"
    shown = f"[{title(name)}]({formulas(name)}) {marks}".strip()
    return f"| `{name}` | {shown} | {idea} | {exchanged} | {'yes' if public(kind) else ''} | {source} |"


def document() -> str:
    """Return the catalogue."""
    text = HEAD
    for heading, belongs in GROUPS.items():
        rows = [row(name) for name in METHODS if belongs(name)]
        head = "| name | method | idea | exchanged | public | paper |\n| --- | --- | --- | --- | --- | --- |"
        text += "\n".join([f"\n## {heading}\n", head, *rows, ""])
    return text


def table() -> str:
    """Return README's table: the published methods of each kind, with the years and links of their papers."""
    lines = ["| clients exchange | methods |", "| --- | --- |"]
    for heading, belongs in KINDS.items():
        shown: dict[str, str] = {}
        for name in METHODS:
            cited = paper(name)
            if cited and belongs(find(name).kind):
                base = re.sub(r" \((?!parameters).*", "", title(name))
                shown.setdefault(base, f"[{base}]({cited[1]}) {year(cited[0])}")
        lines.append(f"| {heading} | {', '.join(shown.values())} |")
    return "\n".join([*lines, ""])


def readme(text: str) -> str:
    """Return the text of README with its table of methods."""
    before, mark, after = text.partition(MARK)
    _, _, rest = after.partition("\n\n")
    return f"{before}{mark}{table()}\n{rest}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
