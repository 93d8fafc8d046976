"""Which methods an experiment's comparison runs: the setting `compare`, and methods of the user's own.

Pipelines are registered without any settings at hand, but not before they are asked for. By then the hook that reads
the settings has called `remember`; where none were read, as in `kedro registry list`, all of the registry are compared.
"""

from collections.abc import Mapping
from contextvars import ContextVar

from ktpfl_pipeline.config.schema import ALL, Experiment
from ktpfl_pipeline.methods import compared

_found: ContextVar[Mapping[str, Experiment] | None] = ContextVar("experiments", default=None)


def remember(experiments: Mapping[str, Experiment]) -> None:
    """Keep the settings of the experiments, by name."""
    _found.set(experiments)


def methods_of(name: str, one_architecture: bool) -> tuple[str, ...]:
    """Return the methods that the comparison of the experiment `name` runs, KT-pFL first, in the order of its report.

    KT-pFL and training alone are always among them. All are those of the registry, and the experiment's methods that
    are given by a dotted path, such as ``my_package.my_method:Nearest``.

    Args:
        name: the experiment's.
        one_architecture: whether all its clients have the same architecture.
    """
    first, *others, local = compared(one_architecture)
    experiment = (_found.get() or {}).get(name)
    if experiment is None:
        return first, *others, local
    own = [method for method in experiment.methods if ":" in method]
    asked = [each for given in experiment.compare for each in ([*others, local, *own] if given == ALL else [given])]
    if local not in asked:
        asked.append(local)
    return tuple(dict.fromkeys([first, *asked]))
