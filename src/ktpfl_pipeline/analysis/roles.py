"""Which methods of a comparison have a role in its report, and which metric leads it."""

from collections.abc import Sequence

from ktpfl_pipeline.analysis.results import HEADLINE, LEADING, MethodResult


def ranked(results: Sequence[MethodResult], point: str = HEADLINE) -> list[MethodResult]:
    """Return the methods that have a final value at a point, the highest mean first, of equals the first."""
    known = [result for result in results if point in result.final]
    return sorted(known, key=lambda result: -result.final[point].mean)


def local_only(results: Sequence[MethodResult]) -> MethodResult | None:
    """Return the local-only result, None where there is none."""
    return next((result for result in results if result.method == "local"), None)


def subject(results: Sequence[MethodResult]) -> MethodResult:
    """Return the method that a report is about.

    This is the method that the setting ``subject`` names, if it is among the results; otherwise KT-pFL, otherwise the
    first method that exchanges knowledge, otherwise local-only training.
    """
    asked = results[0].settings.get("subject")
    exchanging = [result for result in results if result.method != "local"]
    preferred = [result for name in (asked, "kt_pfl") for result in results if result.method == name]
    return [*preferred, *exchanging, *results][0]


def headline(results: Sequence[MethodResult]) -> str:
    """Return what leads a report: an entry of `MethodResult.final`.

    It is the measure that the setting ``headline`` names where all results have it, and else accuracy after transfer.
    """
    asked = results[0].settings.get("headline", "accuracy")
    return asked if asked in LEADING and all(asked in result.final for result in results) else HEADLINE
