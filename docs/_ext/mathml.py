"""Formulas as MathML, made at build time: browsers show it without a script or a font from elsewhere."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def mathml(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML.

    Raises:
        ExtensionError: if it has a command that is not known, which would stand in the page as it is.
    """
    made: str = convert(re.sub(r"\\[Bb]ig(?=\\[lr]?Vert)", "", formula), display=display)
    if unknown := re.search(r">[^<]*(\\|&#x0005C;)[A-Za-z]+", made):
        raise ExtensionError(f"The formula {formula} has a command that latex2mathml does not know: {unknown[0]}")
    return made


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
