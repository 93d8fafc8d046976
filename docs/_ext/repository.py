"""What is written for GitHub and readers of the source, brought to the site: links; signs and fields in docstrings."""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def _to_pages(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    known = getattr(app.env, "_viewcode_modules", {})
    for node in list(doctree.findall(addnodes.download_reference)):
        target = app.env.relfn2path(node["reftarget"], docname)[0]
        if not target.startswith("src/") or not target.endswith(".py"):
            continue
        module = ".".join(PurePosixPath(target).with_suffix("").parts[1:]).removesuffix(".__init__")
        if known.get(module):
            uri = app.builder.get_relative_uri(docname, f"_modules/{module.replace('.', '/')}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def _plain_signs(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Let |S| in a docstring be the size of S, and no substitution."""
    lines[:] = [re.sub(r"(?<!\\)\|", r"\\|", line) for line in lines]


def _readable(app: Sphinx, what: str, name: str, it: Any, options: Any, signature: str, returned: str) -> Any:
    """Write a default that a dataclass makes as ``...``: Sphinx cannot read a signature with ``<factory>``."""
    return (signature.replace("<factory>", "..."), returned) if signature else None


LINK = re.compile(r"(\]\()([^)\s#:]+\.md)(#[^)\s]*)?\)")


def _files(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to pages that are not of the site, such as raw tables, lead to their files."""
    place = PurePosixPath(docname).parent

    def linked(found: re.Match[str]) -> str:
        target = posixpath.normpath(place / found[2])
        outside = target.removesuffix(".md") not in app.env.found_docs and (Path(app.srcdir) / target).is_file()
        return f"{found[1]}path:{found[2]})" if outside else found[0]

    source[0] = LINK.sub(linked, source[0])


def _files_included(app: Sphinx, file: Path, docname: str, content: list[str]) -> None:
    _files(app, PurePosixPath(file).with_suffix("").as_posix(), content)


def _whole(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Begin what is said of a field or a constant with an empty comment, before napoleon reads it.

    It would take all that precedes a colon in the first line for a type, and drop the type that is annotated.
    """
    if lines and what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Act on every docstring, and on every page once all are read."""
    app.connect("autodoc-process-docstring", _whole, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", _plain_signs)
    app.connect("autodoc-process-signature", _readable)
    app.connect("doctree-resolved", _to_pages)
    app.connect("source-read", _files)
    app.connect("include-read", _files_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
