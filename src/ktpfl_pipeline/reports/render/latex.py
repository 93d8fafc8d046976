r"""A report's tables as LaTeX, one file each, which need ``\usepackage{booktabs}``."""

from collections.abc import Collection
from dataclasses import replace

from ktpfl_pipeline.reports.model import Content, Table
from ktpfl_pipeline.reports.numbers import MINUS, NONE, Entry, Number
from ktpfl_pipeline.reports.words import wrapped

_SIGNS = str.maketrans(
    {
        **{special: rf"\{special}" for special in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\ldots{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
        **{"±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "†": r"$\dagger$", "‡": r"$\ddagger$"},
        **{"ρ": r"$\rho$", "α": r"$\alpha$", "δ": r"$\delta$", "ε": r"$\epsilon$", MINUS: "$-$", NONE: "--"},
        **{raised: f"$^{{{digit}}}$" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    }
)


def tables(report: Content, columns: Collection[str] = ()) -> dict[str, str]:
    """Return the tables that have a caption, each as a ``tabular`` below its caption in comments, by file name.

    `columns` are the keys or titles of the columns to keep next to the first one; empty keeps all.
    """
    found = {}
    for given in report.tables.values():
        if given.latex:
            kept = [each for each in given.columns[1:] if not columns or {each.key, each.title} & {*columns}]
            shown = replace(given, columns=[given.columns[0], *kept])
            caption = "".join(f"% {line}\n" for line in wrapped(escape(given.latex), 110))
            found[f"tables/{given.name}.tex"] = f"% needs \\usepackage{{booktabs}}\n{caption}{table(shown)}"
    return found


def table(given: Table) -> str:
    """Return a table as a ``tabular``."""
    rows = [" & ".join(map(_entry, row)) + r" \\" for row in given.entries]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(given.columns) - 1)}}}",
            *(r"\toprule", " & ".join(map(_head, given.headings)) + r" \\", r"\midrule"),
            *(*rows, r"\bottomrule", r"\end{tabular}", ""),
        ]
    )


def escape(text: str) -> str:
    """Return text with LaTeX's special characters escaped, and other symbols as mathematics."""
    return text.translate(_SIGNS)


def _entry(given: Entry) -> str:
    if not isinstance(given, Number):
        return escape(NONE if given is None else str(given))
    main = escape(given.main)
    return " ".join(filter(None, (rf"\textbf{{{main}}}" if given.bold else main, escape(given.beside))))


def _head(column: str) -> str:
    lines = [escape(line) for line in wrapped(column, 9)]
    return r"\shortstack[r]{" + r"\\".join(lines) + "}" if len(lines) > 1 else lines[0]
