"""Early stopping by validation accuracy: one rule for all methods, used only if `evaluation.patience` is set.

After each evaluated round the clients' mean validation accuracy after transfer is compared with the best one so far. A
run ends when `patience` evaluations in a row have not exceeded the best, and its final values, models and
coefficients are those of the best round. If several rounds are equal, the earliest is the best. Means are over the
benign clients. The rule reads only records, so it is the same for every method and executor, and a resumed run ends
in the same round as a run without interruption.
"""

import math
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import VALIDATION, RoundRecord

if TYPE_CHECKING:
    from ktpfl_pipeline.core.setting import Setting


def best(history: Sequence[RoundRecord], adversaries: Collection[int]) -> RoundRecord | None:
    """Return the evaluated round with the highest mean validation accuracy, the first of equals; None if there is none.

    The means exclude `adversaries`, positions of clients. A round in which another client's value is unknown (NaN)
    comes after all others, because its mean is over fewer clients.
    """

    def mean(record: RoundRecord) -> float:
        found = fmean(x for place, x in enumerate(record.accuracy[VALIDATION]) if place not in adversaries)
        return -math.inf if math.isnan(found) else found

    return max((record for record in history if VALIDATION in record.accuracy), key=mean, default=None)


def ends(history: Sequence[RoundRecord], patience: int | None, adversaries: Collection[int]) -> bool:
    if patience is None or (found := best(history, adversaries)) is None:
        return False
    return sum(record.round > found.round and VALIDATION in record.accuracy for record in history) >= patience


def check(setting: "Setting", patience: int | None) -> None:
    """Check that all clients have validation samples if `patience` is set; InputError names a client without."""
    for client in setting.clients if patience is not None else ():
        if not len(client.validation):
            raise InputError(
                f"evaluation.patience is set, and client {client.id} has no validation samples to stop by: set "
                "partition.validation_share higher, or patience to null."
            )
