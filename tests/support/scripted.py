"""Clients that are absent in given rounds."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from ktpfl_pipeline.core.rounds import cohort


@contextmanager
def absences(out: Mapping[int, set[int]]) -> Iterator[None]:
    """Make exactly the clients `out`, by round, absent inside the context."""

    def absent(cohort: Iterable[int], availability: float, t: int, seed: int) -> list[int]:
        return [n for n in cohort if n in out.get(t, ())]

    with patch.object(cohort, "absentees", absent):
        yield
