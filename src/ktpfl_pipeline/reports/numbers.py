"""The format of numbers in reports: means with their spreads or intervals, bytes, and times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ktpfl_pipeline.analysis.statistics import Difference, Final, Name, holm, std_over_seeds

NONE = "–"
MINUS = "−"
hundredths = "{:.2f}".format
MB = "1 MB = 10⁶ bytes"
"""The note on the unit of `megabytes`."""


@dataclass(frozen=True)
class Number:
    """A number of a table."""

    value: float  # unrounded
    written: Callable[[float], str]  # formats the value and the spread
    spread: float | None = None  # the number after ±; None if unknown
    ends: tuple[float, float] | None = None  # the ends of its interval; None without an interval
    bold: bool = False  # whether it is significantly the best, or significantly not zero

    @property
    def main(self) -> str:
        return self.written(self.value)

    @property
    def beside(self) -> str:
        """The spread or interval: ``± 0.3``, ``[+0.4, +2.0]``; empty without a spread or interval."""
        if self.ends is not None:
            return f"[{', '.join(map(self.written, self.ends))}]"
        return "" if self.spread is None else f"± {self.written(self.spread)}"

    def __str__(self) -> str:
        return f"{self.main} {self.beside}".rstrip()


Entry = str | Number | None
"""An entry of a table: text, a number, or None, which is written as a dash."""


def percent(mean: float, std: float | None = None, bold: bool = False) -> Number:
    """Return an accuracy or a spread of accuracies, given as a fraction of 1, in percent: ``96.9 ± 0.3``."""
    return Number(mean, _percent, std, bold=bold)


def accuracy(final: Final | None, bold: bool = False) -> Number | None:
    """Return the mean of a final accuracy in percent with its standard deviation over seeds."""
    return None if final is None else percent(final.mean, final.seed_std, bold)


def mean(values: Sequence[float], written: Callable[[float], str] | None = None) -> Number | None:
    """Return the mean over seeds with its standard deviation, in percent or as `written`; None without values."""
    return Number(fmean(values), written or _percent, std_over_seeds(values)) if values else None


def signed(difference: float) -> Number:
    """Return a difference of accuracies in points, with its sign: ``+1.0``."""
    return Number(difference, _signed)


def interval(difference: Difference | None) -> Number | None:
    """Return a difference in points with its 95 % interval: ``+1.2 [+0.4, +2.0]``; bold if it excludes zero."""
    if difference is None:
        return None
    return Number(difference.mean, _signed, ends=difference.ends, bold=difference.sign != 0)


def corrected(column: Mapping[Name, Difference | None]) -> dict[Name, Number | None]:
    """Return the differences of a table's column in points, by row, with intervals corrected together by `holm`."""
    return {row: interval(found) for row, found in holm(column).items()}


def between(difference: Difference) -> str:
    """Return the interval of a difference in points: ``[+0.4, +2.0]``."""
    return Number(difference.mean, _signed, ends=difference.ends).beside


def weight(difference: Difference | None) -> Number | None:
    """Return a weight in units of 1/N with its 95 % interval: ``0.60 [0.40, 0.80]``."""
    if difference is None:
        return None
    return Number(difference.mean, lambda value: f"{value:.2f}".replace("-", MINUS), ends=difference.ends)


def megabytes(count: float) -> Number:
    """Return bytes in MB of 10⁶ bytes, to three digits."""
    return Number(count / 1e6, three_digits)


def three_digits(value: float) -> str:
    """Return a number with at least three significant digits: ``0.00123``, ``0.12``, ``12.0``, ``5,640``."""
    if value < 0.995:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours: ``8.3 s``, ``42 s``, ``12.3 min``, ``2.4 h``."""
    if seconds == 0:
        return "0 s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3597 else f"{seconds / 3600:.1f} h"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _signed(difference: float) -> str:
    value = round(100 * difference, 1)
    return f"{'+' if value > 0 else MINUS if value < 0 else ''}{abs(value):.1f}"
