"""The settings of studies, which run experiments in several settings: sweeps, tunings and the paper's tables.

The files `conf/base/parameters_{sweep,tune,paper}.yml` document and set them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from ktpfl_pipeline.config import paths
from ktpfl_pipeline.config.schema import ALL, Experiment, Names, Seeds, one_or_more
from ktpfl_pipeline.core.validation import Count, Distinct, Reads, Section, Share, parse
from ktpfl_pipeline.methods import find

SWEEP, TUNE, COMPARE = "sweep_", "tune_", "compare_"
"""Prefixes of the names of sweeps, tunings and comparisons. In the last two, the experiment's name follows."""
DOWNLOADED = ("mnist", "fashion_mnist", "emnist", "cifar10", "cifar100")
"""Sources that are downloaded, and that `Paper.files` replaces by local files."""
PAPER = "paper"
"""The name of the section, and of the pipeline, for the tables and figures of the KT-pFL paper."""


@dataclass(frozen=True)
class CellSettings:
    """One method in one variant of a study, before it is run.

    The attributes have the same meaning as in `analysis.study.Cell`. `section` is the experiment's section of conf/.
    `where` is the start of error messages about the setting.
    """

    section: str
    label: str
    method: str
    experiment: Experiment
    value: Any = None
    part: str = ""
    where: str = ""


@dataclass(frozen=True)
class Sweep(Section):
    """A study that runs the same methods with several values of one setting of an experiment.

    Attributes:
        experiment: the section of the experiment.
        parameter: the path of the setting in the experiment, such as ``training.epochs``.
        values: the values of the setting.
        methods: names in the registry of methods, or dotted paths.
    """

    experiment: str
    parameter: str
    values: Annotated[list[Any], Reads(one_or_more), MinLen(1), Distinct()]
    methods: Names

    def label(self, value: Any) -> str:
        """Return a short name of the setting with a value, such as ``rho=0.3``."""
        if isinstance(value, Mapping):
            return ",".join(f"{name}={each}" for name, each in value.items())
        return f"{paths.split(self.parameter)[-1]}={value}"

    def touches(self, method: str) -> bool:
        """Return whether the method's runs depend on the setting.

        The runs of a method do not depend on the hyperparameters of other methods.
        """
        group, *path = paths.split(self.parameter)
        if group == "methods":
            return path[:1] in ([], [""], [method])
        return find(method).kind.depends_on(self.parameter)


@dataclass(frozen=True)
class Range:
    """A range of numbers, including `low` and `high`. If both are integers, the range has only integers.

    Attributes:
        low: the smallest number.
        high: the largest number.
        log: whether numbers are drawn evenly on a logarithmic scale.
    """

    low: int | float
    high: int | float
    log: bool = False


@dataclass(frozen=True)
class Tune(Section):
    """A search for the hyperparameters of an experiment's methods.

    Attributes:
        trials: the largest number of candidates per method.
        seeds: the seeds of every candidate.
        spaces: for each method, its hyperparameters with a list of values or a range {low: ..., high: ..., log: ...}.
            A method without a space is run once per seed.
    """

    trials: Count
    seeds: Seeds
    spaces: dict[str, dict[str, Annotated[Any, Reads(one_or_more), Distinct()]]]

    def most(self, method: str) -> int:
        return self.trials if self.space(method) else 1

    def space(self, method: str) -> dict[str, list[Any] | Range]:
        """Return the search space of a method: values or a range by hyperparameter; empty if the method has none."""
        return {
            name: values if isinstance(values, list) else parse(Range, values, f"{method}.{name}")
            for name, values in self.spaces.get(method, {}).items()
        }

    def applied(self, experiment: Experiment) -> Experiment:
        """Return the experiment for trials: with the seeds of the tuning, and without evaluations only for reports."""
        judged = replace(experiment.evaluation, adapt_epochs=[0], global_samples=0)
        return replace(experiment, seeds=self.seeds, theorem_samples=0, evaluation=judged)


@dataclass(frozen=True)
class Part:
    """A table or a figure of the KT-pFL paper: the same methods on several experiments, each in several settings.

    Attributes:
        title: the title of the table or figure.
        experiments: sections of conf/.
        columns: the changes of each column to the settings of every experiment, by the column's name; null leaves a
            column out.
        methods: names in the registry of methods, or dotted paths.
        shows: ``table``: a table of accuracies; ``curves``: accuracy by round; ``traffic``: accuracy against bytes;
            ``bytes``: bytes by category.
        settings: changes of all columns to the settings of every experiment. The changes of a column are applied
            afterwards.
        seeds: the seeds of its cells; null: the seeds of the section.
    """

    title: str
    experiments: Names
    columns: Annotated[dict[str, dict[str, Any] | None], MinLen(1)]
    methods: Names
    shows: Literal["table", "curves", "traffic", "bytes"] = "table"
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: Seeds | None = None


@dataclass(frozen=True)
class Paper(Section):
    """The tables and figures of the KT-pFL paper, at one scale.

    Attributes:
        scale: the report's description of the settings.
        only: the names of the requested parts, or all.
        train: whether to train the missing runs.
        files: whether samples come from `npz` files (see `from_files`) instead of downloads.
        seeds: the seeds of every cell.
        validation_share: `partition.validation_share` for methods that fit something on validation samples, if the
            experiment has no validation samples.
        experiments: changes of all parts to the settings of an experiment, by its section; null: no changes.
        parts: tables and figures by name; null leaves a part out.
    """

    scale: str
    seeds: Seeds
    parts: dict[str, Part | None]
    only: Names = field(default_factory=lambda: [ALL])
    train: bool = True
    files: bool = False
    validation_share: Share = 0.1
    experiments: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    def chosen(self) -> dict[str, Part]:
        """Return the requested parts in the order of the configuration, without parts that are null."""
        parts = {name: part for name, part in self.parts.items() if part is not None}
        return {name: part for name, part in parts.items() if ALL in self.only or name in self.only}

    def from_files(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return an experiment's section with ``npz:<name>.npz`` in place of each source that is downloaded.

        The file of ``emnist:letters`` is ``emnist.npz``. If `files` is false, the section is returned unchanged.
        """
        found = dict(settings)
        for kind in ("private", "public") if self.files else ():
            source = str(found.get(kind, {}).get("source", ""))
            if (name := source.partition(":")[0]) in DOWNLOADED:
                found[kind] = {**found[kind], "source": f"npz:{name}.npz"}
        return found
