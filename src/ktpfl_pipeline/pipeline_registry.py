"""Every pipeline by name. An experiment is a section of conf/, and so is a sweep, a tuning, and what is compared."""

from collections import UserDict
from functools import partial
from importlib import import_module
from typing import Any

from click import ClickException
from kedro.config import MissingConfigException
from kedro.pipeline import Pipeline

from ktpfl_pipeline.config import parsing, reading
from ktpfl_pipeline.config.schema import ALL, REAL, RUN_BY_FLOWER, Experiment
from ktpfl_pipeline.config.studies import COMPARE, PAPER, SWEEP, TUNE
from ktpfl_pipeline.core.errors import InputError, nearest
from ktpfl_pipeline.methods import compared

DEFAULT = f"{COMPARE}hetero_digits"


class Pipelines(UserDict[str, Any]):
    """Pipelines by name, or what makes each, which is done when it is asked for."""

    def __getitem__(self, name: str) -> Pipeline:
        """Return a pipeline; for a name that does not exist, raise the error of the command, with the nearest one."""
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
        """Return the end of a message that lists the pipelines."""
        pairs = [name for name in self.data if f"{COMPARE}{name}" in self.data]
        others = [name for name in self.data if name not in pairs and not name.startswith((COMPARE, TUNE, "__"))]
        return (
            f"choose from the experiments {', '.join(pairs)}, each by itself or with {COMPARE} or {TUNE} before its "
            f"name, and from {', '.join(others)}."
        )


def methods_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the methods that the comparison of an experiment runs, KT-pFL first, in the order of its report.

    KT-pFL and local-only training are always included. ``all`` means the registry's methods that exchange what the
    experiment sets, and its methods with a dotted path, such as ``my_package.my_method:Nearest``.
    """
    first, *others, local = compared(one_architecture=experiment.exchange == "parameters")
    own = [method for method in experiment.methods if ":" in method]
    every = [each for each in (*others, local, *own) if each not in experiment.left_out]
    given = [each for each in experiment.compare if each == ALL or each in experiment.named]
    asked = [method for each in given for method in (every if each == ALL else [each])]
    if local not in asked:
        asked.append(local)
    return tuple(dict.fromkeys([first, *asked]))


def _made(maker: str, *arguments: Any) -> Pipeline:
    """Return what a function of `pipelines` makes; its module is imported here, because it imports torch."""
    module, _, function = maker.partition(".")
    made: Pipeline = getattr(import_module(f"ktpfl_pipeline.pipelines.{module}"), function)(*arguments)
    return made


def register_pipelines() -> Pipelines:
    """Return every pipeline by name.

    Of each experiment there are ``<experiment>`` (KT-pFL only) and ``compare_<experiment>`` (with baselines, see
    `methods_of`); of each section ``tune_<experiment>`` the tuning of their hyperparameters, and of each section
    ``sweep_<...>`` the sweep. A ClickException says that what is under conf/ cannot be read.
    """
    try:
        sections = reading.recall()
        experiments = {name: parsing.form(name, sections[name]) for name in parsing.experiments(sections)}
    except (InputError, MissingConfigException) as error:
        raise ClickException(str(error)) from error
    pipelines = Pipelines()
    for name, experiment in experiments.items():
        compare, tuning, methods = f"{COMPARE}{name}", f"{TUNE}{name}", methods_of(experiment)
        pipelines[name] = partial(_made, "experiment.experiment_pipeline", name, name, methods[:1])
        pipelines[compare] = partial(_made, "experiment.experiment_pipeline", compare, name, methods)
        if tuning in sections:
            pipelines[tuning] = partial(_made, "tuning.tuning_pipeline", tuning, name, methods)
    pipelines |= {name: partial(_made, "sweep.sweep_pipeline", name) for name in sections if name.startswith(SWEEP)}
    pipelines["overview"] = partial(_made, "experiment.overview_pipeline")
    if PAPER in sections:
        pipelines[PAPER] = partial(_made, "paper.paper_pipeline")
    pipelines["__default__"] = lambda: pipelines[DEFAULT if DEFAULT in pipelines else next(iter(pipelines))]
    return pipelines
