"""The columns of a comparison's tables: each is declared once, with its title, its unit, its meaning and its value.

Rows are keyed by a column's `key`, which is also its name in CSV files where it is there. Titles, units and meanings
are written by `render` only, so changing a title is one edit here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult, headline, local_only
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.numbers import (
    Entry,
    Number,
    accuracy,
    duration,
    hundredths,
    interval,
    mean,
    megabytes,
    percent,
    three_digits,
)
from ktpfl_pipeline.reports.words import marked, plain, point_title


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str  # its name in rows and in CSV files
    title: str  # of the heading, without the unit
    unit: str = ""  # in brackets after the title; empty for texts and for numbers that name their unit
    meaning: str = ""  # the note below the table; empty if the title is enough
    value: Callable[..., Entry] = lambda *_: None  # computes the column's entry from the object of a row

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def but(self, **changes: Any) -> "Column":
        """Return the column with some attributes replaced."""
        return replace(self, **changes)


class Compared:
    """The values that the columns of a comparison use in addition to a row's method."""

    def __init__(self, results: Sequence[MethodResult]) -> None:
        self.local, self.lead = local_only(results), headline(results)
        self.gains = cache(partial(contrasts.against, self.local, results))


METHOD = Column("method", "Method", value=lambda result, _: marked(result))
TITLE = METHOD.but(value=lambda result, *_: result.title)
"""The same without the marks of methods that are not treated like the others."""
MINUS_LOCAL = Column(
    "minus_local",
    "Minus local-only",
    "points",
    f"after transfer, {words.CORRECTED}",
    lambda result, compared: interval(compared.gains(compared.lead).get(result.method)),
)
TRAFFIC = Column(
    "traffic",
    "Traffic",
    "MB",
    "bytes of all clients and rounds, up and down, mean over seeds; 1 MB = 10⁶ bytes.",
    lambda result, *_: megabytes(result.sent),
)
TIME = Column(
    "seconds",
    "Time",
    meaning="wall time of all rounds with their evaluations, mean over seeds.",
    value=lambda result, *_: Number(result.time, duration),
)
PAPER = Column("paper", "Paper", "%")
CHOSEN = Column("chosen", "Chosen")
VALIDATION = Column("validation", "Validation", "%")
AGREES = Column("agrees", "Agrees")


def gained_at(point: str, title: str, meaning: str = "") -> Column:
    """Return the column of the difference to local-only at an evaluation point, or of a measure."""

    def value(result: MethodResult, compared: Compared) -> Entry:
        return interval(compared.gains(point).get(result.method))

    return MINUS_LOCAL.but(key=f"{point}_minus_local", title=title, meaning=meaning, value=value)


def accuracy_at(point: str, best: MethodResult | None = None, meaning: str = "") -> Column:
    """Return the column of the final accuracy at an evaluation point; `best` is set in bold."""
    return Column(
        point, point_title(point), "%", meaning, lambda result, *_: accuracy(result.final.get(point), result is best)
    )


FAIRNESS = [
    METHOD,
    Column(
        "client_std",
        "Spread over clients",
        "points",
        "standard deviation over the clients, mean over seeds.",
        lambda result, _: percent(result.final[HEADLINE].client_std, result.final[HEADLINE].client_std_spread),
    ),
    Column(
        "worst_decile",
        "Worst decile",
        "%",
        "mean over the tenth of the clients with the lowest accuracy, at least one client.",
        lambda result, _: percent(result.final[HEADLINE].worst_decile, result.final[HEADLINE].worst_decile_spread),
    ),
    Column(
        "worse_off",
        "Worse off",
        "%",
        "share of the clients whose accuracy is below their accuracy with local-only and the same seed, by any amount. "
        "A method without any effect would have about half of the clients that differ here, by chance.",
        lambda result, compared: (
            mean(contrasts.worse_off(result, compared.local))
            if compared.local and result is not compared.local
            else None
        ),
    ),
    Column(
        "sampled",
        "Sampled",
        "%",
        "clients that were in at least one round's cohort.",
        lambda result, _: mean(contrasts.of_clients(result, True)),
    ),
    Column(
        "never_sampled",
        "Never sampled",
        "%",
        "clients that were in no cohort and have what the server would send them now, over the seeds that have any.",
        lambda result, _: mean(contrasts.of_clients(result, False)),
    ),
]


TESTED = ("auc", "calibration_error")
"""Measures whose differences to local-only are tested."""


def _measured(key: str) -> list[Column]:
    """Return a measure of models after transfer, which a round's record may have, and its difference where tested."""
    title, meaning = words.MEASURES[key]
    gained = gained_at(key, f"{title} minus local-only", words.CORRECTED)
    measure = Column(key, title, "%", meaning, lambda result, _: mean(contrasts.means(result, key)))
    return [measure, gained] if key in TESTED else [measure]


QUALITY = [METHOD, *(column for key in words.MEASURES for column in _measured(key))]


def _reached(show: Callable[[contrasts.Reached], float], written: Callable[[float], str]) -> Callable[..., Entry]:
    """Return the entry of a method that reaches local-only's final accuracy: the mean over the seeds that do."""

    def entry(result: MethodResult, compared: Compared) -> Entry:
        if compared.local is None or result is compared.local:
            return None
        by_seed = contrasts.to_local_only(result, compared.local)
        found = [show(each) for each in by_seed if each]
        part = "" if len(found) == len(by_seed) else f" ({len(found)} of {len(by_seed)})"
        return Number(fmean(found), lambda value: f"{written(value)}{part}") if found else "not reached"

    return entry


def _flops(result: MethodResult, _: Compared) -> Entry:
    flops = [run.work.get("flops", 0) for run in result.runs]
    return mean([each / result.clients / 1e9 for each in flops], three_digits) if any(flops) else None


WORK = [
    METHOD,
    Column(
        "samples",
        "Samples trained on",
        "× local-only",
        "private and public samples of all gradient steps of the clients, in units of local-only's with the same seed.",
        lambda result, compared: (
            mean(contrasts.relative_work(result, compared.local), hundredths) if compared.local else None
        ),
    ),
    Column(
        "flops",
        "FLOPs",
        "10⁹ per client",
        "floating-point operations of these steps, mean over clients, counted as PyTorch's counter does.",
        _flops,
    ),
    Column(
        "memory",
        "Memory",
        "MB per client",
        "estimate for one step of plain local training, from weights to activations, mean over clients.",
        lambda result, _: mean([fmean(run.memory) / 1e6 for run in result.runs if run.memory], three_digits),
    ),
    Column(
        "rounds_to_local",
        "Rounds to local-only's accuracy",
        meaning="the first round whose mean accuracy is at least local-only's final one with the same seed, mean over "
        "the seeds that reach it; in brackets how many do.",
        value=_reached(lambda each: each.rounds, lambda value: f"{value:.1f}".removesuffix(".0")),
    ),
    Column(
        "traffic_to_local",
        "Traffic to local-only's accuracy",
        "MB",
        "bytes of all clients until the end of that round.",
        _reached(lambda each: each.sent / 1e6, three_digits),
    ),
]


CATEGORIES = {
    "knowledge_up": "Predictions up",
    "knowledge_down": "Predictions down",
    "parameters_up": "Parameters up",
    "parameters_down": "Parameters down",
    "public_down": "Public set down",
}
"""Titles of the categories of traffic."""


def of_traffic() -> list[Column]:
    """Return the bytes of the whole run by category, their sum, and the bytes per client and round."""
    by_category = [
        Column(f"{name}_bytes", title, "MB", value=lambda result, name=name: megabytes(result.traffic[name]))
        for name, title in CATEGORIES.items()
    ]
    per_turn = Column(
        "per_turn",
        "Per client and round",
        "kB",
        value=lambda result: Number(result.sent / result.turns / 1e3, three_digits),
    )
    return [TITLE, *by_category, TRAFFIC.but(title="Total", meaning=""), per_turn]


def of_phases(results: Sequence[MethodResult]) -> list[Column]:
    """Return the wall time by phase of a round, summed over the rounds."""

    def of(name: str) -> Column:
        def value(result: MethodResult) -> Entry:
            return Number(result.seconds[name], duration) if name in result.seconds else None

        return Column(f"seconds_{name}", plain(name).capitalize(), value=value)

    names = dict.fromkeys(name for result in results for name in result.seconds if name != "round")
    return [TITLE, *map(of, names), TIME.but(title="Whole rounds", meaning="")]
