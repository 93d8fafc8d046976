"""The values on which methods are compared: of clients that were measured in the same round with every method.

A client's value in a round does not count with a method in four cases. The client was not evaluated in this round, and
an earlier value was carried on. Its training diverged in this round. It was absent. It has been in no cohort yet, so
its model is not trained. A client counts with a seed if, of the rounds of the final value in which its
value counts with some method, it counts with all methods in more than half. The values of the other rounds are left out
for every method, and so are the clients that do not count. A left-out value becomes NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, RoundRecord

NO_VALUE, DIVERGED, ABSENT, UNTRAINED = "not evaluated", "diverged", "absent", "in no cohort"
"""The reasons for which a value does not count."""


class LeftOut(NamedTuple):
    """Values of a client that are left out."""

    seed: int
    client: str | int  # its name, or its id
    whole: bool  # whether the client does not count at all
    why: tuple[tuple[str, str, tuple[int, ...]], ...]  # reason, title of the method ("" for all), and rounds

    @property
    def text(self) -> str:
        """The reasons in words: ``not evaluated with Local-only in rounds 3 to 6``."""
        return "; ".join(
            f"{reason}{f' with {title}' * bool(title)}{_in_rounds(rounds) * (reason != UNTRAINED)}"
            for reason, title, rounds in self.why
        )


@dataclass(frozen=True)
class Fresh:
    """Results of several methods without the values that are left out."""

    results: Sequence[MethodResult]
    left_out: Sequence[LeftOut]
    apart: frozenset[int]  # the seeds for which no client counts; their values are unchanged, and must not be compared


def fresh(results: Sequence[MethodResult]) -> Fresh:
    """Return the results on the clients and rounds that count with all methods, see the module."""
    changed, found, apart = dict[int, FinishedRun](), list[LeftOut](), set[int]()
    for seed in dict.fromkeys(run.seed for result in results for run in result.runs):
        titles, runs = zip(
            *((each.title, run) for each in results for run in each.runs if run.seed == seed), strict=True
        )
        if len({len(run.architectures) for run in runs}) > 1:
            continue
        left, whole, cells = _of_seed(titles, runs)
        found += left
        if len(whole) == len(runs[0].architectures):
            apart.add(seed)
        elif whole or any(cells.values()):
            changed |= {id(run): _masked(run, whole, cells) for run in runs}
    if not changed:
        return Fresh(results, found, frozenset(apart))
    masked = [result.having([changed.get(id(run), run) for run in result.runs]) for result in results]
    return Fresh(masked, found, frozenset(apart))


def _of_seed(titles: Sequence[str], runs: Sequence[FinishedRun]) -> tuple[list[LeftOut], set[int], dict[int, set[int]]]:
    """Return what is left out of the runs with one seed, in words and as positions of clients: whole, and by round."""
    lacking = [_lacking(run) for run in runs]
    rounds = [t for t in lacking[0] if all(t in each for each in lacking)]
    found, whole, cells = list[LeftOut](), set[int](), {t: set[int]() for t in rounds}
    for place, name in enumerate(runs[0].client_names):
        why: dict[tuple[str, str], list[int]] = {}
        both = some = 0  # rounds in which the value counts with all methods, and with some method
        for t in rounds:
            without = [m for m, each in enumerate(lacking) if place in each[t].reasons]
            both, some = both + (not without), some + (len(without) < len(runs))
            if without:
                cells[t].add(place)
            for m in without:
                why.setdefault((lacking[m][t].reasons[place], titles[m]), []).append(lacking[m][t].round)
        if rounds and 2 * both <= some:
            whole.add(place)
        if place in whole or both < some:
            found.append(LeftOut(runs[0].seed, name, place in whole, _together(why, len(runs))))
    return found, whole, cells


class Lacking(NamedTuple):
    """Why clients' values in a round do not count, by the position of the client."""

    round: int
    reasons: dict[int, str]


def _lacking(run: FinishedRun) -> dict[int, Lacking]:
    """Return what the rounds of the final value lack, by the distance from the last round.

    With early stopping, each run has another best round, and its key is 0.
    """
    seen, found = set[int](), dict[int, Lacking]()
    for record, key in _keys(run):
        seen.update(record.cohort)
        if key is not None:
            reasons = {place: _reason(record, place, n, seen) for place, n in enumerate(run.client_ids)}
            found[key] = Lacking(record.round, {place: reason for place, reason in reasons.items() if reason})
    return found


def _keys(run: FinishedRun) -> list[tuple[RoundRecord, int | None]]:
    """Return each round and its key in `_lacking`, which is None for a round that is not in the final value."""
    counted, last = {record.round for record in run.counted}, run.history[-1].round if run.patience is None else None
    keys = {t: t - last if last is not None else 0 for t in counted}
    return [(record, keys.get(record.round)) for record in run.history]


def _reason(record: RoundRecord, place: int, client: int, seen: set[int]) -> str:
    values = record.accuracy.get(AFTER_TRANSFER) or next(iter(record.accuracy.values()))
    dropped_out = client in record.late and client not in record.cohort and str(client) in record.reasons
    reasons = {
        NO_VALUE: client in record.stale or math.isnan(values[place]),
        DIVERGED: client in record.diverged,
        ABSENT: client in record.absent or dropped_out,
        UNTRAINED: client not in seen,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _together(why: dict[tuple[str, str], list[int]], methods: int) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Return the reasons, without titles where a reason and its rounds are those of all methods."""
    found = [(reason, title, tuple(rounds)) for (reason, title), rounds in why.items()]
    same = {(reason, rounds) for reason, _, rounds in found}
    if len(same) == 1 and len(found) == methods:
        return ((found[0][0], "", found[0][2]),)
    return tuple(found)


def _masked(run: FinishedRun, whole: set[int], cells: dict[int, set[int]]) -> FinishedRun:
    """Return a run in which the values of the clients at positions `whole`, and those in `cells`, are NaN."""
    history = []
    for record, key in _keys(run):
        gone = whole if key is None else whole | cells.get(key, set())

        def without(values: list[float], gone: set[int] = gone) -> list[float]:
            return [math.nan if place in gone else value for place, value in enumerate(values)]

        accuracy = {point: without(values) for point, values in record.accuracy.items()}
        measures = {name: without(values) for name, values in record.measures.items()}
        history.append(replace(record, accuracy=accuracy, measures=measures))
    majority = [math.nan if place in whole else value for place, value in enumerate(run.majority)]
    return replace(run, history=history, majority=majority)


def _in_rounds(rounds: Sequence[int]) -> str:
    if len(rounds) == 1:
        return f" in round {rounds[0]}"
    if len(rounds) == rounds[-1] - rounds[0] + 1:
        return f" in rounds {rounds[0]} to {rounds[-1]}"
    return f" in rounds {', '.join(map(str, rounds))}"
