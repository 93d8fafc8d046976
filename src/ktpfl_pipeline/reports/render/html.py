"""A report as one HTML page that loads no other file."""

import json
import re
from functools import cache

import jinja2
from markupsafe import Markup, escape

from ktpfl_pipeline import __version__
from ktpfl_pipeline.reports.figures.base import svg_on_page
from ktpfl_pipeline.reports.model import Column, Content, Picture, Table
from ktpfl_pipeline.reports.numbers import NONE, Entry, Number


def page(report: Content) -> str:
    return _template().render(report=report, version=__version__)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ktpfl_pipeline.reports", "render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"kind": lambda block: type(block).__name__, "json": json.dumps}
    environment.filters |= {each.__name__: each for each in (drawing, entry, head, unbroken, slug, sortable, texts)}
    return environment.get_template("page.html.jinja")


def unbroken(text: str) -> str:
    """Return text without line breaks inside percentages and intervals, such as ``95 %`` and ``[−1.0, +3.0]``."""
    return re.sub(r"(?<=\d) (?=%)|(?<=\d,) (?=[-−+]?[\d.]+\])", "\N{NO-BREAK SPACE}", text)


def drawing(picture: Picture) -> Markup:
    """Return a figure as an ``svg`` element with a description."""
    said = Markup('<svg role="img" aria-label="{}"').format(picture.alternative)
    return Markup(svg_on_page(picture.svg).replace("<svg", said, 1))


def entry(given: Entry) -> Markup:
    """Return an entry of a table. The spread or interval has a separate style."""
    if not isinstance(given, Number):
        return escape(NONE if given is None else given)
    main = Markup("<strong>{}</strong>" if given.bold else "{}").format(given.main)
    return main + (Markup('<span class="spread"> {}</span>').format(given.beside) if given.beside else "")


def sortable(given: Entry) -> str:
    """Return the value by which a table sorts an entry: its number or its text. A dash is the smallest value."""
    if given is None:
        return "-Infinity"  # the script would take an empty text for 0
    return repr(given.value) if isinstance(given, Number) else given


def texts(table: Table) -> list[bool]:
    """Return for each column whether it is left-aligned, which is so if one of its entries starts with a letter."""
    columns = zip(*table.entries, strict=True)
    return [any(isinstance(each, str) and re.match(r"[^\W\d]", each) for each in column) for column in columns]


def head(column: Column) -> Markup:
    return escape(column.title) + (Markup(' <span class="unit">({})</span>').format(column.unit) if column.unit else "")


def slug(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-").lower()
