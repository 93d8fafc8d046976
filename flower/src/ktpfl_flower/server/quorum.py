"""The number of clients that a round needs, and the number of attempts with fewer."""

import logging
import math
from collections.abc import Mapping, Sequence

from ktpfl_pipeline.core.errors import InputError, by_reason

logger = logging.getLogger(__name__)


class Quorum:
    """Counts attempts of a round with too few clients."""

    def __init__(self, share: float, tries: int) -> None:
        """Count no attempt yet.

        Args:
            share: the smallest share of a cohort with which a round counts, in 0..1; at least one client is needed.
            tries: the number of attempts per round.
        """
        self._share, self._tries = share, tries
        self._failed: dict[int, int] = {}  # attempts by round

    def of(self, cohort: Sequence[int]) -> int:
        """Return the number of clients of a cohort that a round needs."""
        return max(1, math.ceil(round(self._share * len(cohort), 9)))

    def enough(self, cohort: Sequence[int], out: Mapping[int, str], t: int) -> bool:
        """Return whether round t continues without the clients that are `out`; False: it is attempted again.

        Args:
            cohort: the clients of the round.
            out: the reason for each client that dropped out.
            t: the round.

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
                f"{len(cohort)}, but quorum requires {needed} ({why}). Restart these clients, or raise deadline if "
                "they were only slow. Then run the same command again; the run continues after its last finished round."
            )
        logger.warning("Round %d is repeated, because only %d of %d clients are left (%s).", t, left, len(cohort), why)
        return False
