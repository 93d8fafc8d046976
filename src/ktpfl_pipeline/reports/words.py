"""Words that all reports share."""

from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.core.identity import flat

INTERVAL = (
    "paired by seed, with the 95 % t interval over the seeds; bold where it excludes zero. One seed has no interval, and "
    "the intervals are not corrected for their number."
)
"""What stands behind every difference."""
LANDMARK = (
    "Table 1 of the paper, with the same data, partition, clients, models, epochs and batches. It has no local-only row, "
    "and states neither rounds, temperature nor evaluation point: a landmark, not a target."
)
"""Of the paper's numbers, where they stand beside ours."""


def plural(number: int, word: str) -> str:
    """Return a number with its noun: ``1 round``, ``3 rounds``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def over_seeds(seeds: int) -> str:
    """Return what a caption says of several seeds: ``, mean over 3 seeds``."""
    return f", mean over {seeds} seeds" if seeds > 1 else ""


def averaged(seeds: int) -> str:
    """Say of what an accuracy is the mean."""
    over = f", then over {seeds} seeds; ± is the sample standard deviation over seeds" if seeds > 1 else "; one seed"
    return f"mean over clients and the mean of the last five evaluations{over}."


def plain(name: str) -> str:
    """Return a name of the configuration as words."""
    return name.replace("_", " ")


def setting(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list | tuple):
        return ", ".join(map(setting, value))
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def settings(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings flat, as they are written under conf/."""
    return {name: setting(value) for name, value in flat(dict(values)).items()}


def listed_seeds(seeds: Sequence[int]) -> str:
    """Return which seeds: ``seed 0``, ``seeds 0, 1``."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def transfer(results: Sequence[MethodResult]) -> str:
    """Return how knowledge comes back in these methods, in a word: distillation, aggregation, or transfer for both.

    A method whose clients send models, and beside them a few numbers that do not come back, aggregates.
    """
    parameters = any(result.traffic["parameters_up"] or result.traffic["parameters_down"] for result in results)
    knowledge = any(
        result.traffic["knowledge_down"] or result.traffic["knowledge_up"] > result.traffic["parameters_up"]
        for result in results
    )
    return {(True, False): "distillation", (False, True): "aggregation"}.get((knowledge, parameters), "transfer")


def point_title(point: str, results: Sequence[MethodResult]) -> str:
    """Return what an evaluation point is called in a column."""
    known = {HEADLINE: f"After {transfer(results)}", "after_local": "After local training"}
    return known.get(point, point.capitalize())
