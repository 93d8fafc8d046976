"""Mermaid blocks as the pictures that were drawn of them: ``python docs/generate/mermaid.py``.

GitHub draws such a block itself. The site works without a network and without scripts of others, so it shows the SVG in
``docs/images/``, which the first line of the block names: ``%% architecture.svg``.
"""

import hashlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

IMAGES = Path(__file__).parents[1] / "images"


def digest(source: str) -> str:
    """Return what stands in a picture's last line: by it a picture is known to be of this block."""
    return f"<!-- sha256 {hashlib.sha256(source.strip().encode()).hexdigest()} -->"


def picture(source: str) -> Path:
    """Return the place of a block's picture."""
    return IMAGES / source.strip().splitlines()[0].removeprefix("%%").strip()


class Mermaid(SphinxDirective):
    """A block of Mermaid."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return its picture.

        Raises:
            ExtensionError: if the picture is not of this block.
        """
        source = "\n".join(self.content)
        place = picture(source)
        if not place.is_file() or digest(source) not in place.read_text(encoding="utf-8"):
            raise self.error(f"{place.name} is not of this block: python docs/generate/mermaid.py")
        return [nodes.image(uri=f"/docs/images/{place.name}", alt=place.stem, classes=["diagram"])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
