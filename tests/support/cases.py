"""Many cases in one test: a failure names its case."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Add the name of the case to any failure inside the context."""
    try:
        yield
    except BaseException as failure:  # pytest's failures do not derive from Exception
        failure.add_note("The case: " + ", ".join(str(each)[:200] for each in what))
        raise
