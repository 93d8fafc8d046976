r"""A report's tables as LaTeX, which needs ``\usepackage{booktabs}``."""

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


def tables(report: Content) -> str:
    """Return the report's tables that have a caption, each as a ``table``."""
    lines = ["% needs \\usepackage{booktabs}"]
    label = f"tab:{report.name.lower().replace('_', '-')}"
    for given in report.tables.values():
        if given.latex:
            short, rest = first_sentence(given.latex)
            lines += [
                r"\begin{table}",
                r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
                *wrapped(rf"\caption{{{escape(short)}}}", 110),
                rf"\label{{{label if given.name == 'table' else f'{label}-{given.name}'}}}",
                table(given).strip(),
                *(wrapped(rf"\par\medskip\parbox{{\linewidth}}{{{escape(rest)}}}", 110) if rest else []),
                r"\end{table}",
                "",
            ]
    return "\n".join(lines)


def first_sentence(caption: str) -> tuple[str, str]:
    """Return a caption's first sentence, which is the caption in LaTeX, and the rest, which follows the table."""
    first, stop, rest = caption.partition(". ")
    return first + stop.strip(), rest


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
    """Return a column's heading, in several narrow lines."""
    lines = [escape(line) for line in wrapped(column, 9)]
    return r"\shortstack[r]{" + r"\\".join(lines) + "}" if len(lines) > 1 else lines[0]
