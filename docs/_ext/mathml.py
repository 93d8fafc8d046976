"""Formulas as MathML, made at build time: browsers show it without a script or a font from elsewhere."""

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
FUNCTIONS, WITH_LIMITS = {"log", "exp", "min", "max"}, {"min", "max"}


def set_like_tex(made: str, display: str) -> str:
    """Return MathML with a thin space between a function and its argument, and limits below min and max in displays."""
    ElementTree.register_namespace("", NAMESPACE[1:-1])
    root = ElementTree.fromstring(made)
    for parent in [*root.iter()]:
        for place, child in reversed([*enumerate(parent)]):
            base = child[0] if child.tag.endswith(("msub", "munder")) and len(child) else child
            name = (base.text or "").strip()
            if display == "block" and child is not base and name in WITH_LIMITS:
                child.tag = f"{NAMESPACE}munder"
            after = parent[place + 1] if place + 1 < len(parent) and parent.tag.endswith(("mrow", "math")) else None
            if name in FUNCTIONS and after is not None and not after.tag.endswith("mo"):
                parent.insert(place + 1, ElementTree.Element(f"{NAMESPACE}mspace", {"width": "0.17em"}))
    return ElementTree.tostring(root, encoding="unicode")


def mathml(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML.

    Raises:
        ExtensionError: if it has a command that is not known, which would stand in the page as it is.
    """
    made: str = convert(re.sub(r"\\[Bb]ig(?=\\[lr]?Vert)", "", formula), display=display)
    if unknown := re.search(r">[^<]*(\\|&#x0005C;)[A-Za-z]+", made):
        raise ExtensionError(f"The formula {formula} has a command that latex2mathml does not know: {unknown[0]}")
    return set_like_tex(made, display)


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
