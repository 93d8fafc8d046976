"""What may be under a sweep, a tuning or the paper in conf/: sections that run experiments in several settings.

Each setting is documented where it is set, in `conf/base/parameters_{sweep,tune,paper}.yml`.
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
"""What the names of sweeps, tunings and comparisons begin with; the experiment's follows in the last two."""
DOWNLOADED = ("mnist", "fashion_mnist", "emnist", "cifar10", "cifar100")
"""Sources that `Paper.files` replaces by files."""
PAPER = "paper"
"""The section, and the pipeline, of the KT-pFL paper's tables and figures."""


@dataclass(frozen=True)
class CellSettings:
    """One method in one setting of a study, as it is to be run.

    The attributes mean the same as in the `analysis.study.Cell` that is made of it. `section` is of conf/, and `where`
    starts a message about the setting.
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
    """One setting of an experiment at several values, each with the same methods.

    Attributes:
        experiment: the section of the experiment.
        parameter: the path of the setting in it: ``training.epochs``.
        values: the values of the setting.
        methods: names in the registry of methods, or dotted paths.
    """

    experiment: str
    parameter: str
    values: Annotated[list[Any], Reads(one_or_more), MinLen(1), Distinct()]
    methods: Names

    def label(self, value: Any) -> str:
        """Return the setting at a value in short: ``rho=0.3``."""
        if isinstance(value, Mapping):
            return ",".join(f"{name}={each}" for name, each in value.items())
        return f"{paths.split(self.parameter)[-1]}={value}"

    def touches(self, method: str) -> bool:
        """Return whether the method's runs depend on the setting.

        They do not depend on another method's hyperparameters. If the method sends no predictions, they do not depend
        on `knowledge`.
        """
        group, *path = paths.split(self.parameter)
        if group == "knowledge":
            return "predictions" in find(method).kind.exchanges
        return group != "methods" or path[:1] in ([], [""], [method])


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; integers if both are.

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
        spaces: each method's hyperparameters with a list of values or a range {low: ..., high: ..., log: ...}. A method
            without any is run once.
    """

    trials: Count
    seeds: Seeds
    spaces: dict[str, dict[str, Annotated[Any, Reads(one_or_more), Distinct()]]]

    def most(self, method: str) -> int:
        """Return how many candidates of a method there are at most."""
        return self.trials if self.space(method) else 1

    def space(self, method: str) -> dict[str, list[Any] | Range]:
        """Return the method's hyperparameters with what is tried for them; none for a method without a space."""
        return {
            name: values if isinstance(values, list) else parse(Range, values, f"{method}.{name}")
            for name, values in self.spaces.get(method, {}).items()
        }

    def applied(self, experiment: Experiment) -> Experiment:
        """Return the experiment as its trials run it: with the tuning's seeds, and nothing that only a report shows."""
        judged = replace(experiment.evaluation, adapt_epochs=[0], global_samples=0)
        return replace(experiment, seeds=self.seeds, theorem_samples=0, evaluation=judged)


@dataclass(frozen=True)
class Part:
    """A table or a figure of the KT-pFL paper: experiments, each in several settings, with the same methods.

    Attributes:
        title: the title of the table or figure.
        experiments: sections of conf/.
        columns: settings by name, with the changes that each makes to every experiment; null leaves a column out.
        methods: names in the registry of methods, or dotted paths.
        shows: a table of accuracies, accuracy by round, accuracy against bytes, or bytes by what they are.
        settings: changes that all columns make to every experiment; a column's own changes come after.
        seeds: the seeds of its cells; null: the seeds of the whole section.
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
        only: the requested parts.
        train: whether to train the missing runs.
        files: whether samples come from `npz` files (see `from_files`) instead of downloads.
        seeds: the seeds of every cell.
        validation_share: `partition.validation_share` for methods that choose on validation samples, if the experiment
            has no validation samples for the others.
        experiments: changes that all parts make to an experiment, by its section; null changes nothing.
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

        The file of ``emnist:letters`` is ``emnist.npz``. Without `files` the section is returned as it is.
        """
        found = dict(settings)
        for kind in ("private", "public") if self.files else ():
            source = str(found.get(kind, {}).get("source", ""))
            if (name := source.partition(":")[0]) in DOWNLOADED:
                found[kind] = {**found[kind], "source": f"npz:{name}.npz"}
        return found
