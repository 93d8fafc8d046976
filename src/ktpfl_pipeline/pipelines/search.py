"""Which candidates are tried for one method: the configured values first, then what Optuna asks for.

The same seed and the same accuracies give the same candidates, so a search that is run again asks for what it asked for
before. That is how a tuning is resumed, and how more trials are added: nothing but the finished runs has to be kept.
"""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from ktpfl_pipeline.config.studies import Range

Space = Mapping[str, list[Any] | Range]
Values = dict[str, Any]
RANDOM = 4
"""Candidates in a range that TPE is given to start from, the configured ones among them: half of our usual budget."""
ASKED = 10
"""How often Optuna is asked for each candidate at most: it may return a known one again, mostly with few integers."""
DIGITS = 3
"""Of a number drawn from a range, so that it can be read and written under conf/."""


def search(
    space: Space, start: Values, trials: int, seed: int, evaluate: Callable[[Values], float | None]
) -> list[Values]:
    """Evaluate at most `trials` candidates, all different, and return them in order.

    The first candidate is `start`, the configured values, in the space or not. Where everything in the space is a list,
    the others are combinations: all of them if they are few enough, else some drawn without replacement. Where there is
    a range, TPE chooses, after a few random draws. The `seed` is that of all draws. `evaluate` returns a candidate's
    accuracy; None where its training diverged.
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
            accuracies.append(evaluate(values) or 0.0)  # diverged is as bad as can be
        study.tell(trial, accuracies[found.index(values)])
    return found


def _combinations(space: Space, start: Values, most: int, seed: int) -> list[Values]:
    lists: Any = space.values()  # no range is among them
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*lists)]
    others = [values for values in every if values != start]
    if len(others) > most:
        random.Random(seed).shuffle(others)
    return others[:most]


def _distribution(tried: list[Any] | Range, configured: Any) -> Any:
    """Return what Optuna draws from; integer ends give integers, unless the configured value is a fraction."""
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
    """Return a number of a range with few digits, inside the range."""
    if isinstance(tried, list) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), tried.low), tried.high)
