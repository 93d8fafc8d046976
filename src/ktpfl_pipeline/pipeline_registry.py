"""The pipelines by name. They are made from the sections of conf/: experiments, sweeps, tunings and the paper."""

from collections import UserDict
from functools import partial
from typing import Any

from click import ClickException
from kedro.config import MissingConfigException
from kedro.pipeline import Pipeline

from ktpfl_pipeline.config import parsing, reading
from ktpfl_pipeline.config.schema import ALL, REAL, RUN_BY_FLOWER, Experiment
from ktpfl_pipeline.config.studies import COMPARE, PAPER, SWEEP, TUNE
from ktpfl_pipeline.core.errors import InputError, nearest
from ktpfl_pipeline.methods import compared

DEFAULT = (f"{SWEEP}first_run", f"{COMPARE}hetero_digits")
"""The pipelines that run if none is named: the first that conf/ has. conf/quick has the first one."""


class Pipelines(UserDict[str, Any]):
    """Pipelines by name. A value may be a function that makes the pipeline; it is called on first access."""

    def __getitem__(self, name: str) -> Pipeline:
        """Return a pipeline. Raises ClickException, which suggests the nearest name, if there is no such pipeline."""
        if name not in self.data and name.removeprefix(COMPARE) == REAL:
            raise ClickException(f"There is no pipeline {name!r}. {RUN_BY_FLOWER}")
        if name not in self.data:
            hint = nearest(name, self, self.told())
            experiment = name.removeprefix(TUNE)
            for section in (name, name.removeprefix(COMPARE)):
                hint = reading.unread(section) or hint
            if name != experiment and experiment in self.data:
                hint = (
                    f"tune {experiment} with a section {name} in conf/, such as `{name}: {{like: tune_hetero_digits}}`."
                )
            raise ClickException(f"There is no pipeline {name!r}; {hint}")
        if not isinstance(self.data[name], Pipeline):
            self.data[name] = self.data[name]()
        made: Pipeline = self.data[name]
        return made

    def told(self) -> str:
        """Return the end of an error message, which lists the pipelines."""
        pairs = [name for name in self.data if f"{COMPARE}{name}" in self.data]
        others = [name for name in self.data if name not in pairs and not name.startswith((COMPARE, TUNE, "__"))]
        return (
            f"choose from the experiments {', '.join(pairs)}, each by itself or with {COMPARE} or {TUNE} before its "
            f"name, and from {', '.join(others)}."
        )


def methods_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the methods in the comparison of an experiment, in the order of the report, KT-pFL first.

    KT-pFL and local-only training are always included. In `compare`, ``all`` means the registry's methods for the
    experiment's `exchange`, and for the methods with a dotted path under `methods`.
    """
    first, *others, local = compared(one_architecture=experiment.exchange == "parameters")
    own = [method for method in experiment.methods if ":" in method]
    every = [each for each in (*others, local, *own) if each not in experiment.left_out]
    given = [each for each in experiment.compare if each == ALL or each in experiment.named]
    asked = [method for each in given for method in (every if each == ALL else [each])]
    if local not in asked:
        asked.append(local)
    return tuple(dict.fromkeys([first, *asked]))


def _made(function: str, *arguments: Any) -> Pipeline:
    """Return the pipeline that a function of `graphs` makes. The import is here because the module imports torch."""
    from ktpfl_pipeline.pipelines import graphs

    made: Pipeline = getattr(graphs, function)(*arguments)
    return made


def register_pipelines() -> Pipelines:
    """Return every pipeline by name.

    Each experiment has a pipeline ``<experiment>``, which runs KT-pFL only, and a pipeline ``compare_<experiment>``,
    which runs the methods of `methods_of`. Each section ``tune_<experiment>`` and ``sweep_<name>`` has a pipeline of
    the same name. Further pipelines are ``overview``, ``paper`` if conf/ has this section, and ``__default__``. Raises
    ClickException if conf/ cannot be read, or a section is not valid.
    """
    try:
        sections = reading.recall()
        experiments = {name: parsing.form(name, sections[name]) for name in parsing.experiments(sections)}
    except (InputError, MissingConfigException) as error:
        raise ClickException(str(error)) from error
    pipelines = Pipelines()
    for name, experiment in experiments.items():
        compare, tuning, methods = f"{COMPARE}{name}", f"{TUNE}{name}", methods_of(experiment)
        pipelines[name] = partial(_made, "experiment_pipeline", name, name, methods[:1])
        pipelines[compare] = partial(_made, "experiment_pipeline", compare, name, methods)
        if tuning in sections:
            pipelines[tuning] = partial(_made, "tuning_pipeline", tuning, name, methods)
    pipelines |= {name: partial(_made, "sweep_pipeline", name) for name in sections if name.startswith(SWEEP)}
    pipelines["overview"] = partial(_made, "overview_pipeline")
    if PAPER in sections:
        pipelines[PAPER] = partial(_made, "paper_pipeline")
    pipelines["__default__"] = lambda: pipelines[next(name for name in (*DEFAULT, *pipelines) if name in pipelines)]
    return pipelines
