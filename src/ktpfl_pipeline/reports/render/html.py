"""A report as one HTML page that loads nothing."""

import jinja2
from markupsafe import Markup, escape
from pandas import DataFrame, Index
from pandas.io.formats.style import Styler

from ktpfl_pipeline import __version__
from ktpfl_pipeline.reports.figures.base import svg
from ktpfl_pipeline.reports.model import ALERT, Content, Table
from ktpfl_pipeline.reports.numbers import NONE, Number


def page(report: Content) -> str:
    """Return the page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ktpfl_pipeline.reports", "render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"kind": lambda block: type(block).__name__, "table": table}
    environment.filters["svg"] = lambda figure, name: Markup(svg(figure, name))
    template = environment.get_template("page.html.jinja")
    return template.render(report=report, alert=ALERT, version=__version__)


def table(given: Table) -> Markup:
    """Return a table as a ``table`` element without styles; the first column heads the rows."""
    frame = DataFrame([list(row[1:]) for row in given.rows], columns=list(given.columns[1:]), dtype=object)
    frame.index = Index([row[0] for row in given.rows])
    frame.columns.name = _head(given.columns[0])
    styler = Styler(frame).format(_entry).format_index(escape, axis=0).format_index(_head, axis=1)
    return Markup(styler.to_html(exclude_styles=True))


def _entry(given: object) -> Markup:
    if not isinstance(given, Number):
        return escape(NONE if given is None else given)
    main = Markup("<strong>{}</strong>" if given.bold else "{}").format(given.main)
    return main + (Markup('<span class="spread"> {}</span>').format(given.beside) if given.beside else "")


def _head(column: object) -> Markup:
    name, bracket, unit = str(column).partition(" (")
    return escape(name) + (Markup(' <span class="unit">({}</span>').format(unit) if bracket else "")
