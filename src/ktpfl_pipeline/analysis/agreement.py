"""Which results may be in one report: those made with the current settings, of methods that saw the same data.

Where dtype or memory format is `auto`, the choice that was made then counts as configured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import differences


def check_settings(what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that something was made `then` with the settings of `now`; an `InputError` says of `what` what differs."""
    asked, chosen = now.get("compute", {}), then.get("compute", {})
    left = [name for name in ("dtype", "memory_format") if str(asked.get(name)).startswith("auto") and name in chosen]
    if left:
        now = {**now, "compute": {**asked, **{name: chosen[name] for name in left}}}
    if changes := differences(then, now):
        raise InputError(
            f"{what} made with other settings ({changes}); run it again with these, or put the settings back."
        )


def comparable(results: Sequence[MethodResult], settings: Mapping[str, Any]) -> list[MethodResult]:
    """Return the results of a comparison; an `InputError` names one that has other settings or saw other data."""
    for result in results:
        check_settings(f"The result of {result.method} was", result.settings, settings)
        settings = result.settings  # what auto chose for the first, it must have chosen for all
    check_data(results)
    return list(results)


def check_data(results: Sequence[MethodResult]) -> None:
    """Check that all methods saw the same data with each seed; an `InputError` names the first that did not."""
    seen: dict[int, str] = {}
    for run in (run for result in results for run in result.runs):
        if run.data != seen.setdefault(run.seed, run.data):
            raise InputError(
                f"{run.method} saw other data than {results[0].method} with seed {run.seed}: the samples or the "
                "partition changed between their runs; run the whole comparison again."
            )
