"""The report on a tuning: the candidates of each method, and the values that validation accuracy chooses.

Test accuracies of the trials are not shown anywhere: not here, not on the terminal, and not in their MLflow runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.statistics import std_over_seeds
from ktpfl_pipeline.analysis.trials import Trial, Tuning, highest
from ktpfl_pipeline.methods import slug, title
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.columns import CHOSEN, METHOD, VALIDATION, Column
from ktpfl_pipeline.reports.data_files import to_csv
from ktpfl_pipeline.reports.model import Block, Notes, Picture, Section, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, percent, points
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.words import averaged, clients, listed_seeds, plain, plural, setting, too_few
from ktpfl_pipeline.reports.words import settings as written

TRIALS = "Each trial is one MLflow run per seed, below the tuning's run."


def build(name: str, tuning: Tuning, chosen: str) -> Report:
    """Return the report on a tuning.

    Args:
        name: the tuning's.
        tuning: all its trials.
        chosen: the chosen values as comparisons read them, JSON.
    """
    settings, outcome = tuning.settings, summary(tuning)
    main = table(tuning, outcome)
    spaces = {
        title(method): {entry: _tried(tried) for entry, tried in space.items()}
        for method, space in tuning.tune["spaces"].items()
        if method in tuning.methods
    }
    rows = [
        {
            **{"method": method, "trial": number, "values": _changes(trial) or "", "validation": trial.validation},
            **{"chosen": int(trial is highest(trials)), "run_ids": " ".join(trial.run_ids)},
        }
        for method, trials in tuning.methods.items()
        for number, trial in enumerate(trials, 1)
    ]
    return Report(
        name=name,
        kind="Tuning",
        summary=outcome,
        facts=[
            f"private {settings['private']['source']}",
            f"{clients(settings)}, {plain(settings['partition']['scheme'])}",
            plural(settings["rounds"], "round"),
            listed_seeds(tuning.seeds),
        ],
        sections=[
            Section("", [main, Notes(main.meanings)]),
            *search_sections(tuning),
            Section("What was searched", [Settings(spaces)]),
            Section("Settings of all trials", [Settings({"": written(settings)})], folded=True),
            Section(
                "Trials",
                [trial_table(tuning), Text("Each trial is one MLflow run per seed, below the tuning's run.")],
                True,
            ),
        ],
        brief=[main.without("configured", "configured_validation", "candidates")],
        data={"trials.csv": to_csv(rows), "hyperparameters.json": chosen},
    )


def search_sections(tuning: Tuning) -> list[Section]:
    """Return Optuna's pictures of the search; no sections where no method has two finished candidates."""
    studies = {
        method: figures.optuna_study(title(method), tuning.tune["spaces"][method], trials)
        for method, trials in tuning.methods.items()
        if trials[0].changes and sum(trial.validation is not None for trial in trials) > 1
    }
    if not studies:
        return []
    history = "Validation accuracy of each candidate in the order of the search; lines: the best so far. 0: configured."
    blocks: list[Block] = []
    for method, study in studies.items():
        caption = f"{title(method)}: validation accuracy by the value of each hyperparameter; darker: later candidates."
        blocks.append(Picture(f"slice_{slug(method)}", figures.search_slices(study), caption))
        if figures.importance_is_known(study):
            share = f"{title(method)}: share of the variance of validation accuracy that each hyperparameter explains, "
            share += "by fANOVA. With few candidates this is a rough estimate."
            blocks.append(Picture(f"importance_{slug(method)}", figures.search_importances(study), share))
    return [
        Section(
            "Course of the search",
            [Picture("history", figures.search_history(list(studies.values()), list(studies)), history)],
        ),
        Section("Accuracy by hyperparameter", blocks, folded=len(studies) > 3),
    ]


def summary(tuning: Tuning) -> str:
    """Count the methods whose chosen values are not the configured ones, and list those at the end of a range."""
    searched = {method: trials for method, trials in tuning.methods.items() if trials[0].changes}
    moved = [method for method, trials in searched.items() if highest(trials) is not trials[0]]
    first = (
        f"Validation accuracy chooses other values than the configured ones for {len(moved)} of {len(searched)} "
        f"methods with hyperparameters to choose, among at most {tuning.tune['trials']} candidates each."
    )
    edges = [
        f"{title(method)}'s {', '.join(found)}"
        for method, trials in searched.items()
        if (found := _edges(tuning.tune["spaces"][method], highest(trials).changes))
    ]
    beyond = f"At the end of the searched range, so better values may lie beyond: {'; '.join(edges)}." if edges else ""
    few = too_few(len(tuning.seeds))
    few = few and f"With {few}, so close candidates may not differ significantly."
    return " ".join(filter(None, (first, beyond, few)))


def _edges(space: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """Return the chosen values that are the smallest or largest of at least three numbers, or an end of a range."""
    found = []
    for name, value in chosen.items():
        ranged = isinstance(space[name], Mapping)
        tried = [space[name]["low"], space[name]["high"]] if ranged else space[name]
        numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
        if (ranged or len(numbers) > 2) and value in (min(numbers), max(numbers)):
            found.append(f"{name}={setting(value)}")
    return found


def table(tuning: Tuning, latex: str = "") -> Table:
    """Return one row per method: the chosen and the configured values with their validation accuracies."""
    accuracy_of = (
        "of each client's own model at the end of the round, on samples that no client is tested on; "
        f"{averaged(len(tuning.seeds))} The highest of several is too optimistic: compare on test data, with other "
        "seeds."
    )

    def gain(_: str, trials: Sequence[Trial]) -> Entry:
        best, first = highest(trials), trials[0]
        known = first.changes and first.validation is not None
        return points((best.validation or 0.0) - (first.validation or 0.0)) if known else None

    shown = [
        METHOD.but(value=lambda method, _: title(method)),
        CHOSEN.but(
            meaning="the candidate of highest validation accuracy, the first of equals. Test accuracy chooses nothing.",
            value=lambda _, trials: _changes(highest(trials)),
        ),
        VALIDATION.but(meaning=accuracy_of, value=lambda _, trials: _validation(highest(trials))),
        Column(
            "configured",
            "Configured",
            "",
            "the values of conf/, which are always the first candidate.",
            lambda _, trials: _changes(trials[0]),
        ),
        VALIDATION.but(
            key="configured_validation",
            title="Configured: validation",
            value=lambda _, trials: _validation(trials[0]),
        ),
        Column("gain", "Gain", "points", "", gain),
        Column(
            "candidates",
            "Candidates",
            "",
            f"at most {tuning.tune['trials']} per method; one where there is nothing to choose. Diverged: the training "
            "became NaN or infinite.",
            lambda _, trials: str(len(trials)),
        ),
    ]
    return Table.of("table", shown, tuning.methods.items(), latex=latex)


def trial_table(tuning: Tuning) -> Table:
    """Return one row per trial: its values, its validation accuracy, and the ids of its runs in MLflow."""
    rows = [
        (method, number, trial, trial is highest(trials))
        for method, trials in tuning.methods.items()
        for number, trial in enumerate(trials, 1)
    ]
    shown = [
        METHOD.but(value=lambda method, *_: title(method)),
        Column("trial", "Trial", value=lambda _, number, *__: str(number)),
        Column("values", "Values", value=lambda _, __, trial, ___: _changes(trial)),
        VALIDATION.but(value=lambda _, __, trial, ___: _validation(trial)),
        CHOSEN.but(value=lambda *row: "chosen" if row[3] else ""),
        Column(
            "run_ids", "MLflow runs", value=lambda _, __, trial, ___: ", ".join(filter(None, trial.run_ids)) or NONE
        ),
    ]
    return Table.of("trials", shown, rows)


def _changes(trial: Trial) -> str | None:
    return ", ".join(f"{name}={setting(value)}" for name, value in trial.changes.items()) or None


def _validation(trial: Trial) -> Entry:
    return "diverged" if trial.validation is None else percent(trial.validation, std_over_seeds(trial.per_seed))


def _tried(tried: Any) -> str:
    if not isinstance(tried, Mapping):
        return setting(tried)
    return f"{setting(tried['low'])} to {setting(tried['high'])}{', on a logarithmic scale' * bool(tried.get('log'))}"
