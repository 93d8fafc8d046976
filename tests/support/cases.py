"""Many cases in one test: what fails says of which case it is."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name the case with whatever fails in here."""
    try:
        yield
    except BaseException as failure:  # pytest's own are no exceptions
        failure.add_note("The case: " + ", ".join(str(each)[:200] for each in what))
        raise
