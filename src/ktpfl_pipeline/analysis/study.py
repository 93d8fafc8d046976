"""What a study leaves: methods in several settings, each setting with the results of its methods.

A sweep, a tuning and the paper's tables are studies. Their cells are run by `pipelines.study`. A comparison is one
setting of the study that the overview shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field

from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, Kept, MethodResult, summarize
from ktpfl_pipeline.analysis.statistics import Difference, Final, difference
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.core.metrics import VALIDATION
from ktpfl_pipeline.methods import title

CIRCUMSTANCES = ("private", "partition", "adversaries", "availability", "stragglers", "budgets", "newcomers")
"""Settings that describe a federation; they cannot be chosen."""
LEFT = ("title", "final", "traffic", "seconds", "rounds", "seeds", "run_ids", "curve")
"""What a comparison leaves of each method for the overview."""


@dataclass(frozen=True)
class Cell(Kept):
    """One method in one setting, as far as its seeds are finished."""

    part: str  #: the table or figure of the paper; empty elsewhere
    experiment: str  #: section of conf/
    label: str  #: what the setting is called
    method: str  #: registry name
    settings: dict[str, Any]  #: what all methods of the setting share
    hyperparameters: dict[str, Any]
    seeds: Sequence[int]  #: that it takes
    keys: dict[int, str] = field(default_factory=dict)  #: of its runs, by seed; none where it cannot be run
    runs: Sequence[FinishedRun] = field(default_factory=list)  #: those that are finished
    value: Any = None  #: what distinguishes the setting, a sweep's value or a candidate's searched hyperparameters
    kept: MethodResult | None = None  #: the result, where no runs are stored
    seconds: float | None = None  #: a run takes, as far as it is known
    judged: str = ""  #: how that is known
    failed: str = ""  #: why the cell cannot be finished; empty where nothing is known against it
    samples: float | None = None  #: private, of a client, mean over clients and seeds; None if the data cannot be made

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return title(self.method)

    @property
    def left(self) -> list[str]:
        """The keys of the runs that are not finished."""
        done = {run.key for run in self.runs}
        return [key for key in self.keys.values() if key not in done]

    @cached_property
    def result(self) -> MethodResult | None:
        """The result, once all seeds are finished."""
        if self.kept or len(self.runs) != len(self.seeds):
            return self.kept
        return summarize(self.runs, self.hyperparameters, self.settings)

    @property
    def final(self) -> Final | None:
        """Its final accuracy over clients and seeds, in 0..1; None before all seeds are finished."""
        return self.result.final[HEADLINE] if self.result else None

    @property
    def validation(self) -> Final | None:
        """The same on validation samples; None too without these."""
        return self.result.final.get(VALIDATION) if self.result else None

    @property
    def score(self) -> float | None:
        """The score of a search: mean validation accuracy over clients and seeds, in 0..1."""
        return self.validation.mean if self.validation else None


@dataclass(frozen=True)
class Point:
    """One setting of a study, with the results of its methods."""

    value: Any  #: what distinguishes the setting, the value of a sweep or the folder of a comparison's report
    settings: dict[str, Any]  #: what all methods share there
    methods: dict[str, MethodResult]  #: what came out, by registry name

    def led(self, headline: str) -> "Point":
        """Return the point with the setting ``headline``, which no run depends on, among its results' settings."""
        own = {name: {**each.settings, "headline": headline} for name, each in self.methods.items()}
        return replace(self, methods={name: replace(self.methods[name], settings=own[name]) for name in own})


@dataclass(frozen=True)
class Study(Kept):
    """The results of a sweep's, a tuning's or the paper's runs."""

    asked: dict[str, Any]  #: its section of conf/, as plain values
    key: str  #: identifies it
    run_id: str  #: of its MLflow run
    #: setting by setting in a sweep, method by method in a tuning; all finished, or failed
    cells: Annotated[list[Cell], Field(min_length=1)]

    @property
    def methods(self) -> dict[str, list[Cell]]:
        """The cells by registry name of their method."""
        names = dict.fromkeys(cell.method for cell in self.cells)
        return {name: [cell for cell in self.cells if cell.method == name] for name in names}

    @property
    def points(self) -> list[Point]:
        """The results by setting, in the order of the cells."""
        groups = [list(own) for _, own in groupby(self.cells, key=lambda cell: cell.value)]
        return [
            Point(own[0].value, own[0].settings, {cell.method: cell.result for cell in own if cell.result})
            for own in groups
        ]


def comparison(name: str, results: Sequence[MethodResult]) -> dict[str, Any]:
    """Return the part of a comparison that the overview of all comparisons needs, in plain values.

    It has the comparison's ``name``, the ``settings`` that all its methods share, and ``methods``: the values `LEFT` of
    each method, by registry name.
    """
    kept = [replace(result, runs=[]).to_dict() for result in results]
    return {
        "name": name,
        "settings": results[0].settings,
        "methods": {values["method"]: {part: values[part] for part in LEFT} for values in kept},
    }


def compared(content: Mapping[str, Any]) -> list[MethodResult]:
    """Return the results, without their runs, that `comparison` wrote."""
    left = {"settings": content["settings"], "hyperparameters": {}, "runs": []}
    return [MethodResult.from_dict({"method": name, **values, **left}) for name, values in content["methods"].items()]


def read(name: str, content: Any, asked: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> Study:
    """Return the study that `Study.to_dict` wrote, if it was made with the settings of now.

    These are its section of conf/, `asked`, and the settings of each of its points; of a tuning, one for all cells.

    Raises:
        InputError: if it does not read as a study, or was made with other settings, naming what differs.
    """
    try:
        study = Study.from_dict(content)
    except ValueError as error:
        raise InputError(
            f"data/07_model_output/{name}/cells.json does not read as the results of this version ({error}): delete it "
            f"and run `kedro run --pipelines={name}` again, which takes finished runs from their checkpoints."
        ) from error
    check_settings(f"The results of {name} were", study.asked, asked)
    given = [point.settings for point in study.points] if len(settings) > 1 else [study.cells[0].settings]
    for then, now in zip(given, settings, strict=True):
        check_settings(f"The results of {name} were", then, now)
    for point in study.points:
        check_data(list(point.methods.values()))
    return study


def check_settings(what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that something was made `then` with the settings of `now`; an `InputError` says of `what` what differs.

    Where dtype or memory format is `auto`, the choice that was made then counts as configured.
    """
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


def highest(cells: Sequence[Cell]) -> Cell:
    """Return the cell of highest validation accuracy; the first of equals, so the configured values where they are."""
    return max(cells, key=lambda cell: cell.score or 0.0)


def touched(points: Sequence[Point], method: str) -> bool:
    """Return whether the setting changes a method's accuracies or bytes; true if there is only one point."""
    first, *others = [point.methods[method] for point in points]
    outcomes = [({at: final.per_seed for at, final in one.final.items()}, one.traffic) for one in (first, *others)]
    return not others or any(outcome != outcomes[0] for outcome in outcomes)


def chosen(points: Sequence[Point], method: str) -> Point | None:
    """Return the point with the method's highest validation accuracy, the first of equals; None for `no_choice`."""
    if no_choice(points, [method]):
        return None
    return max(points, key=lambda point: point.methods[method].final[VALIDATION].mean)


def no_choice(points: Sequence[Point], methods: Iterable[str]) -> str:
    """Return why validation accuracy chooses no point for any of the methods; empty where it does for one."""
    if len(points) == 1:
        return "there is only one"
    owned = [[run.label_counts for result in point.methods.values() for run in result.runs] for point in points]
    if any(counts != owned[0] for counts in owned):
        other = "it decides which samples the clients own, so validation accuracies are of different samples"
        return f"{other}. Compare by the difference to local-only"
    if any(point.settings.get(name) != points[0].settings.get(name) for point in points for name in CIRCUMSTANCES):
        return "it describes the federation, which cannot be chosen. Compare by the difference to local-only"
    affected = [method for method in methods if touched(points, method)]
    if not affected:
        return "it made no difference to any method"
    if all(any(VALIDATION not in point.methods[method].final for point in points) for method in affected):
        return "there are no validation samples (partition.validation_share), and test accuracy must not choose"
    return ""


def trust(result: MethodResult) -> Difference | None:
    """Return the weight that benign clients give to adversaries, in units of 1/N, over seeds; None without a matrix."""
    return difference([run.trust for run in result.runs if run.trust is not None])


def numeric(points: Sequence[Point]) -> bool:
    """Return whether all values are numbers."""
    return all(isinstance(point.value, int | float) and not isinstance(point.value, bool) for point in points)


def seconds_left(cells: Sequence[Cell]) -> float | None:
    """Return the seconds that the runs of these cells still take, each run once; None where one is not known."""
    seconds = {key: cell.seconds for cell in cells for key in cell.left}
    known = [each for each in seconds.values() if each is not None]
    return sum(known) if len(known) == len(seconds) else None
