"""The search for hyperparameters of one method: the configured values first, then candidates that Optuna proposes.

The same seed and the same accuracies give the same candidates. A repeated search therefore proposes its earlier
candidates again, whose runs are finished. In this way a tuning is resumed or gets more trials, and only the finished
runs have to be kept.
"""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from ktpfl_pipeline.config.studies import Range

Space = Mapping[str, list[Any] | Range]
Values = dict[str, Any]
RANDOM = 4
"""The number of candidates before TPE starts, including the configured one: half of our usual budget."""
ASKED = 10
"""The largest number of requests to Optuna per candidate. Optuna may repeat a candidate if a range has few integers."""
DIGITS = 3
"""The significant digits of a number drawn from a range, so that it is easy to read and to write in conf/."""


def search(
    space: Space, start: Values, trials: int, seed: int, evaluate: Callable[[Values], float | None]
) -> list[Values]:
    """Evaluate at most `trials` candidates, all different, and return them in order.

    If the space has only lists, the candidates after the first are combinations of their values: all combinations if
    `trials` allows, otherwise a random draw without replacement. If the space has a range, TPE chooses the candidates
    after a few random draws.

    Args:
        space: the values to try for each hyperparameter, a list or a range.
        start: the configured values, which are the first candidate even if they are outside of the space.
        trials: the largest number of candidates.
        seed: the seed of all random draws.
        evaluate: returns the accuracy of a candidate, or None if its training diverged.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM, seed=seed % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {name: _distribution(tried, start[name]) for name, tried in space.items()}
    found, accuracies, more = [start], [evaluate(start) or 0.0], trials - 1
    if all(_holds(tried, start[name]) for name, tried in space.items()):
        first = optuna.trial.create_trial(params=start, distributions=distributions, value=accuracies[0])
        study.add_trial(first)
    if all(isinstance(tried, list) for tried in space.values()):
        others = _combinations(space, start, more, seed)
        more = len(others)
        for values in others:
            study.enqueue_trial(values)
    for _ in range(ASKED * more):
        if len(found) > more:
            break
        trial = study.ask(distributions)
        values = {name: _short(trial.params[name], tried) for name, tried in space.items()}
        if values not in found:
            found.append(values)
            accuracies.append(evaluate(values) or 0.0)  # a diverged candidate counts as accuracy 0
        study.tell(trial, accuracies[found.index(values)])
    return found


def _combinations(space: Space, start: Values, most: int, seed: int) -> list[Values]:
    lists: Any = space.values()  # the caller checks that there is no range
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*lists)]
    others = [values for values in every if values != start]
    if len(others) > most:
        random.Random(seed).shuffle(others)
    return others[:most]


def _distribution(tried: list[Any] | Range, configured: Any) -> Any:
    """Return Optuna's distribution: integers if both ends are integers and the configured value is not a float."""
    from optuna import distributions

    if isinstance(tried, list):
        return distributions.CategoricalDistribution(tried)
    if isinstance(tried.low, int) and isinstance(tried.high, int) and not isinstance(configured, float):
        return distributions.IntDistribution(tried.low, tried.high, log=tried.log)
    return distributions.FloatDistribution(tried.low, tried.high, log=tried.log)


def _holds(tried: list[Any] | Range, value: Any) -> bool:
    if isinstance(tried, list):
        return value in tried
    return isinstance(value, int | float) and tried.low <= value <= tried.high


def _short(value: Any, tried: list[Any] | Range) -> Any:
    """Return a value; a number from a range is rounded to `DIGITS` significant digits and kept inside the range."""
    if isinstance(tried, list) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), tried.low), tried.high)
