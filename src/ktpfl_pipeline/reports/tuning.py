"""The report on a tuning: what was tried for each method, and what the validation data choose.

Test accuracies of the trials are nowhere: not here, not on the terminal, and not in their MLflow runs.
"""

from collections.abc import Mapping
from typing import Any

from ktpfl_pipeline.analysis.statistics import std_over_seeds
from ktpfl_pipeline.analysis.trials import Trial, Tuning, highest
from ktpfl_pipeline.methods import title
from ktpfl_pipeline.reports.model import Notes, Section, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, percent, points
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import to_csv
from ktpfl_pipeline.reports.words import averaged, clients, listed_seeds, plain, plural, setting, too_few
from ktpfl_pipeline.reports.words import settings as written


def build(name: str, tuning: Tuning, chosen: str) -> Report:
    """Return the report on a tuning.

    Args:
        name: the tuning's.
        tuning: all its trials.
        chosen: what comparisons read of it.
    """
    settings, told = tuning.settings, summary(tuning)
    main = table(tuning, told)
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
        summary=told,
        facts=[
            f"private {settings['private']['source']}",
            f"{clients(settings)}, {plain(settings['partition']['scheme'])}",
            plural(settings["rounds"], "round"),
            listed_seeds(tuning.seeds),
        ],
        sections=[
            Section("", [main, Notes(notes(tuning))]),
            Section("What was searched", [Settings(spaces)]),
            Section("Settings of all trials", [Settings({"": written(settings)})], folded=True),
            Section(
                "Trials", [trial_table(tuning), Text("Each trial is one MLflow run a seed, below the tuning's.")], True
            ),
        ],
        brief=[main.without("Configured", "Configured: validation (%)", "Candidates")],
        data={"trials.csv": to_csv(rows), "hyperparameters.json": chosen},
    )


def summary(tuning: Tuning) -> str:
    """Say for how many methods other than the configured values were chosen, and which choices lie at an edge."""
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
    beyond = f"At the end of what was tried, so that better ones may lie beyond: {'; '.join(edges)}." if edges else ""
    few = too_few(len(tuning.seeds))
    few = few and f"{few[0].upper()}{few[1:]}, neighbours are often not different."
    return " ".join(filter(None, (first, beyond, few)))


def _edges(space: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """Return the chosen values that are the smallest or largest of three numbers at least, or an end of a range."""
    found = []
    for name, value in chosen.items():
        ranged = isinstance(space[name], Mapping)
        tried = [space[name]["low"], space[name]["high"]] if ranged else space[name]
        numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
        if (ranged or len(numbers) > 2) and value in (min(numbers), max(numbers)):
            found.append(f"{name}={setting(value)}")
    return found


def table(tuning: Tuning, latex: str = "") -> Table:
    """Return one row a method."""
    rows: list[dict[str, Entry]] = []
    for method, trials in tuning.methods.items():
        best, first = highest(trials), trials[0]
        known = first.changes and first.validation is not None
        gain = points((best.validation or 0.0) - (first.validation or 0.0)) if known else None
        rows.append(
            {
                **{"Method": title(method), "Chosen": _changes(best), "Validation (%)": _validation(best)},
                **{"Configured": _changes(first), "Configured: validation (%)": _validation(first)},
                **{"Gain (points)": gain, "Candidates": str(len(trials))},
            }
        )
    return Table.of("table", rows, latex)


def trial_table(tuning: Tuning) -> Table:
    """Return one row a trial: its values, its validation accuracy, and what finds its runs in MLflow."""
    rows: list[dict[str, Entry]] = [
        {
            "Method": title(method),
            "Trial": str(number),
            "Values": _changes(trial),
            "Validation (%)": _validation(trial),
            "Chosen": "chosen" if trial is highest(trials) else "",
            "MLflow runs": ", ".join(filter(None, trial.run_ids)) or NONE,
        }
        for method, trials in tuning.methods.items()
        for number, trial in enumerate(trials, 1)
    ]
    return Table.of("trials", rows)


def notes(tuning: Tuning) -> dict[str, str]:
    """Return what the columns of `table` mean, by column."""
    return {
        "Chosen": "the candidate of highest validation accuracy, the first of equals. Test accuracy chooses nothing.",
        "Validation": "of each client's own model at the end of the round on samples that no client is tested on; "
        f"{averaged(len(tuning.seeds))} The highest of several is too good: compare on test data, with other seeds.",
        "Configured": "what stands under conf/; always the first candidate.",
        "Candidates": f"at most {tuning.tune['trials']} for each method; one where there is nothing to choose. "
        "Diverged: training did not stay finite.",
    }


def _changes(trial: Trial) -> str | None:
    return ", ".join(f"{name}={setting(value)}" for name, value in trial.changes.items()) or None


def _validation(trial: Trial) -> Entry:
    return "diverged" if trial.validation is None else percent(trial.validation, std_over_seeds(trial.per_seed))


def _tried(tried: Any) -> str:
    if not isinstance(tried, Mapping):
        return setting(tried)
    return f"{setting(tried['low'])} to {setting(tried['high'])}{', equal by ratio' * bool(tried.get('log'))}"
