"""How many clients a round needs, and how often it is attempted with fewer."""

import logging
import math
from collections.abc import Mapping, Sequence

from ktpfl_pipeline.core.errors import InputError, by_reason

logger = logging.getLogger(__name__)


class Quorum:
    """The smallest share of a cohort with which a round counts."""

    def __init__(self, share: float, tries: int) -> None:
        """Count no attempt yet.

        Args:
            share: of a cohort, in 0..1; one client is the least.
            tries: how often a round is attempted.
        """
        self._share, self._tries = share, tries
        self._failed: dict[int, int] = {}  # attempts by round

    def of(self, cohort: Sequence[int]) -> int:
        """Return how many clients of a cohort a round needs."""
        return max(1, math.ceil(round(self._share * len(cohort), 9)))

    def enough(self, cohort: Sequence[int], out: Mapping[int, str], t: int) -> bool:
        """Return whether round t goes on without the clients that are `out`, by why; False: it is attempted again.

        Raises:
            InputError: if this was the last attempt.
        """
        left, needed = len(cohort) - len(out), self.of(cohort)
        if left >= needed:
            return True
        self._failed[t], why = self._failed.get(t, 0) + 1, "; ".join(by_reason(out))
        if self._failed[t] >= self._tries:
            raise InputError(
                f"Round {t} was attempted {self._tries} times with too few clients, the last time with {left} of "
                f"{len(cohort)}, and quorum asks for {needed} ({why}). Start these clients again, or raise "
                "deadline if they were only slow, and give the same command again: it goes on after the last round "
                "that ended."
            )
        logger.warning("Round %d is repeated: %d of %d clients are left (%s).", t, left, len(cohort), why)
        return False
