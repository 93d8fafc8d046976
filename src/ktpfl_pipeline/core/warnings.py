"""The warnings of a run: what may make its result wrong or weaker than it looks, although the run can go on.

`warn` logs a warning and gives it to every surrounding `collected`. Samples, prepared data, federations and runs keep
what was collected when they were made (fields ``warnings``): `engine.run` returns and checkpoints the warnings of its
federation and its own, so a resumed or reused run still has them, and a report shows those of its runs in one box.

To add a warning, add its kind with one line to `KINDS`, and call ``warn(kind, text)`` where the run is prepared,
started or trained. The text is one or two sentences: what was found and how often, an example, and what to do.
docs/reference/warnings.md is made from `KINDS`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ktpfl_pipeline.core.errors import printable

logger = logging.getLogger(__name__)

KINDS = {
    "Transparent images": "images with transparent pixels, which are laid over white",
    "Further pages": "image files with several pages or frames, of which the first is read",
    "Skipped files": "files next to the samples, or images and arrays outside of the folders that are read",
    "Unread columns": "columns of a table with nearly the name of a column that would be read, such as `clients`",
    "Unreadable files": "image files that are missing or damaged and are left out (`image.unreadable: skip`)",
    "Cut texts": "texts longer than `text.length`",
    "Unknown words": "texts whose words are mostly unknown to the vocabulary",
    "Names alike": "names of classes or clients that differ only in capitals, blanks, Unicode form or number format",
    "Names of no value": "classes or clients named `nan` or the like, which may mean missing values",
    "Pixels": "images whose pixels use only a small part of the range from 0 to 255",
    "Axes": "inputs whose axes seem to be in another order than channels first",
    "Equal samples": "test samples that equal a training sample, more than rows of coarse columns do by chance",
    "Groups on both sides": "groups, such as patients, that the source's own split separates",
    "Untrained classes": "classes that are tested and that the client, or no client, has training samples of",
    "Outliers": "values far outside of a column, by which standardization hides the other values",
    "Units": "clients whose values of a column are far from those of most others, as in another unit",
    "Public samples": "public samples that belong to clients, or that equal private samples and are left out",
    "Absent classes": "classes that the source names and that no sample has",
    "One feature per value": "columns of ids or of free text that became one feature for each value",
    "The label as a feature": "columns with one value in each class, as a copy of the label has",
    "A model's trial": "models that depend on tensors outside of parameters and buffers, or that set torch's seed",
    "Another processor": "a run that continued on another processor, whose results may differ in the last digits",
    "Participation": "clients that were in no round's cohort, so that their models were never trained",
}
"""The kinds of warnings, each with one line that says what is warned of. Reports show a kind as the warning's title."""


@dataclass(frozen=True)
class Warned:
    """One warning."""

    kind: str  #: a key of `KINDS`
    text: str  #: what was found, with count and example, and what to do


Found = dict[Warned, None]
"""Different warnings in the order in which they were first given."""
_open: ContextVar[tuple[Found, ...]] = ContextVar("open", default=())
_spelled: ContextVar[Callable[[str], str]] = ContextVar("spelled", default=printable)


def warn(kind: str, text: str) -> None:
    """Log a warning and give it to every surrounding `collected`. If one of them has it already, it is not logged.

    Raises ValueError if `kind` is not a key of `KINDS`.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of warning: add it to KINDS")
    one = Warned(kind, printable(_spelled.get()(text)))
    if not any(one in found for found in _open.get()):
        logger.warning(one.text)
    recall([one])


def recall(warnings: Iterable[Warned]) -> None:
    """Give warnings that were logged before, such as those of a checkpoint, to every surrounding `collected`."""
    given = dict.fromkeys(warnings)
    for found in _open.get():
        found.update(given)


@contextmanager
def collected() -> Iterator[Found]:
    """Collect the warnings that are given in this context, each once. Contexts may be nested."""
    found: Found = {}
    token = _open.set((*_open.get(), found))
    try:
        yield found
    finally:
        _open.reset(token)


@contextmanager
def spelled(spell: Callable[[str], str]) -> Iterator[None]:
    """Give ``spell(text)`` in place of the text of each warning in this context."""
    token = _spelled.set(spell)
    try:
        yield
    finally:
        _spelled.reset(token)


def start_command() -> None:
    """Begin a command: until the next one begins, no warning is logged twice."""
    _open.set(({},))
