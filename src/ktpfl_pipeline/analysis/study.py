"""The results of studies. A study runs methods in several variants of an experiment; each pair of these is a cell.

Sweeps, tunings and the paper's tables are studies, whose cells `runs.study` runs. The overview treats each
comparison as one variant of a study.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, Stored, summarize
from ktpfl_pipeline.analysis.statistics import Difference, Final, difference
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import differences, digest
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, VALIDATION
from ktpfl_pipeline.methods import title

CIRCUMSTANCES = ("private", "partition", "adversaries", "availability", "stragglers", "budgets", "newcomers")
"""Settings that describe a federation, and that therefore cannot be chosen by validation accuracy."""


def circumstances(settings: Mapping[str, Any]) -> str:
    """Return a hash of the settings that describe a federation, its data and what clients may send."""
    names = (*CIRCUMSTANCES, "clients", "participation", "knowledge", "hyperparameters")
    public, privacy = (
        settings.get(group, {}).get(name) for group, name in (("public", "source"), ("training", "privacy"))
    )
    return digest([public, privacy, *(settings.get(name) for name in names)])


@dataclass(frozen=True)
class Cell(Stored):
    """One method in one variant of a study, with the runs that are finished."""

    part: str  #: table or figure of the paper; empty in other studies
    experiment: str  #: section of the experiment in conf/
    label: str  #: name of the variant
    method: str  #: registry name
    settings: dict[str, Any]  #: settings that all methods share
    hyperparameters: dict[str, Any]
    seeds: Sequence[int]  #: requested seeds
    keys: dict[int, str] = field(default_factory=dict)  #: keys of the runs by seed; empty if it cannot be run
    runs: Sequence[FinishedRun] = field(default_factory=list)  #: finished runs
    value: Any = None  #: a sweep's value, or a candidate's searched hyperparameters
    kept: MethodResult | None = None  #: the result, if no runs are stored
    seconds: float | None = None  #: estimated seconds per run; None if unknown
    judged: str = ""  #: the basis of the estimate
    failed: str = ""  #: the reason why the cell cannot be finished; empty if none is known

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return title(self.method)

    @property
    def left(self) -> list[str]:
        """The keys of the unfinished runs."""
        done = {run.key for run in self.runs}
        return [key for key in self.keys.values() if key not in done]

    @cached_property
    def result(self) -> MethodResult | None:
        """The result of the method; None before all seeds are finished."""
        if self.kept or len(self.runs) != len(self.seeds):
            return self.kept
        return summarize(self.runs, self.hyperparameters, self.settings)

    @property
    def final(self) -> Final | None:
        """The final test accuracy over clients and seeds, in 0..1; None before all seeds are finished."""
        return self.result.final[AFTER_TRANSFER] if self.result else None

    @property
    def validation(self) -> Final | None:
        """The final validation accuracy over clients and seeds, in 0..1; None if unfinished or without such samples."""
        return self.result.final.get(VALIDATION) if self.result else None

    @property
    def score(self) -> float | None:
        """The score in a search: mean validation accuracy over clients and seeds, in 0..1; None if there is none."""
        return self.validation.mean if self.validation else None


@dataclass(frozen=True)
class Study(Stored):
    """The results of a sweep, a tuning or the paper's tables."""

    asked: dict[str, Any]  #: section of the study in conf/, as plain values
    key: str  #: hash that identifies the study
    run_id: str  #: id of the study's run in MLflow
    #: cells, all finished or failed; in a sweep ordered by variant, in a tuning by method
    cells: Annotated[list[Cell], Field(min_length=1)]

    @property
    def methods(self) -> dict[str, list[Cell]]:
        """The cells of each method, by registry name."""
        names = dict.fromkeys(cell.method for cell in self.cells)
        return {name: [cell for cell in self.cells if cell.method == name] for name in names}

    @property
    def by_value(self) -> list[list[Cell]]:
        """The cells of each variant, in order."""
        return [list(own) for _, own in groupby(self.cells, key=lambda cell: cell.value)]

    @property
    def variants(self) -> list[Comparison]:
        """The finished results of each variant, in the order of the cells."""
        return [Comparison([cell.result for cell in own if cell.result], own[0].value) for own in self.by_value]


def read(name: str, content: Any, asked: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> Study:
    """Return a stored study after checking that it was made with the present settings.

    Args:
        name: the name of the study.
        content: the values that `Study.to_dict` returned.
        asked: the present section of the study in conf/.
        settings: the present settings of each variant; for a tuning, a single element for all cells.

    Raises:
        InputError: if the content is not a valid study, if settings differ, or if methods saw different data.
    """
    try:
        study = Study.from_dict(content)
    except ValueError as error:
        raise InputError(
            f"data/07_model_output/{name}/cells.json does not read as the results of this version ({error}): delete it "
            f"and run `kedro run --pipelines={name}` again, which takes finished runs from their checkpoints."
        ) from error
    check_settings(f"The results of {name} were", study.asked, asked)
    given = [own[0].settings for own in study.by_value] if len(settings) > 1 else [study.cells[0].settings]
    for then, now in zip(given, settings, strict=True):
        check_settings(f"The results of {name} were", then, now)
    for variant in study.variants:
        check_data(variant.given)
    return study


def check_settings(what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise InputError if the settings `then`, with which `what` was made, differ from the settings `now`."""
    if changes := differences(then, now):
        raise InputError(
            f"{what} made with other settings ({changes}); run it again with these, or put the settings back."
        )


def check_data(results: Sequence[MethodResult]) -> None:
    """Raise InputError if two methods were run on different data with the same seed."""
    seen: dict[int, str] = {}
    for run in (run for result in results for run in result.runs):
        if run.data != seen.setdefault(run.seed, run.data):
            raise InputError(
                f"{run.method} saw other data than {results[0].method} with seed {run.seed}: the samples or the "
                "partition changed between their runs; run the whole comparison again."
            )


def highest(cells: Sequence[Cell]) -> Cell:
    """Return the cell with the highest validation accuracy. Ties go to the first cell, such as the configured one."""
    return max(cells, key=lambda cell: cell.score or 0.0)


def touched(variants: Sequence[Comparison], method: str) -> bool:
    """Return whether the swept setting changes a method's accuracies or bytes; true for a single variant."""
    first, *others = [variant.methods[method] for variant in variants]
    outcomes = [({at: final.per_seed for at, final in one.final.items()}, one.traffic) for one in (first, *others)]
    return not others or any(outcome != outcomes[0] for outcome in outcomes)


def chosen(variants: Sequence[Comparison], method: str) -> Comparison | None:
    """Return the variant with the method's highest validation accuracy, the first if equal; None if `no_choice`."""
    if no_choice(variants, [method]):
        return None
    return max(variants, key=lambda variant: variant.methods[method].final[VALIDATION].mean)


def no_choice(variants: Sequence[Comparison], methods: Iterable[str]) -> str:
    """Return the reason why validation accuracy cannot choose a variant for any method; empty if it can for one."""
    if len(variants) == 1:
        return "there is only one"
    owned = [[run.label_counts for result in variant.methods.values() for run in result.runs] for variant in variants]
    if any(counts != owned[0] for counts in owned):
        other = "it decides which samples the clients own, so validation accuracies are of different samples"
        return f"{other}. Compare by the difference to local-only"
    if any(
        variant.settings.get(name) != variants[0].settings.get(name) for variant in variants for name in CIRCUMSTANCES
    ):
        return "it describes the federation, which cannot be chosen. Compare by the difference to local-only"
    affected = [method for method in methods if touched(variants, method)]
    if not affected:
        return "it made no difference to any method"
    if all(any(VALIDATION not in variant.methods[method].final for variant in variants) for method in affected):
        return "there are no validation samples (partition.validation_share), and test accuracy must not choose"
    return ""


def trust(result: MethodResult) -> Difference | None:
    """Return the weight of benign clients on adversaries, in units of 1/N, over seeds; None if no run has it."""
    return difference([run.trust for run in result.runs if run.trust is not None])


def numeric(variants: Sequence[Comparison]) -> bool:
    """Return whether the values of all variants are numbers."""
    return all(isinstance(variant.value, int | float) and not isinstance(variant.value, bool) for variant in variants)


def seconds_left(cells: Sequence[Cell]) -> float | None:
    """Return the estimated seconds of the unfinished runs of cells, each run once; None if one is unknown."""
    seconds = {key: cell.seconds for cell in cells for key in cell.left}
    known = [each for each in seconds.values() if each is not None]
    return sum(known) if len(known) == len(seconds) else None
