"""The page that all reports share: one HTML file that loads nothing."""

from typing import Any

import jinja2

from ktpfl_pipeline import __version__


def render(template: str, **values: Any) -> str:
    """Return the page that a template of this folder makes; it extends ``page.html.jinja``.

    Args:
        template: its file name.
        values: what it shows; ``name`` is the page's title.

    Raises:
        jinja2.UndefinedError: if the template shows what was not given.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ktpfl_pipeline", "reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render({"version": __version__, **values})
