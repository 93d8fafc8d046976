"""A tuning: what was tried for each method, and what the validation data choose.

Test accuracies are in the trials' MLflow runs like in any run's, and in nothing here.
"""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ktpfl_pipeline.config.schema import TUNE, Experiment, Tune
from ktpfl_pipeline.config.tuned import Tuned, TunedMethod, to_text
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports import page, tables
from ktpfl_pipeline.reports.report import Report

if TYPE_CHECKING:
    import pandas as pd

VALIDATION = "validation"


@dataclass(frozen=True)
class Trial:
    """One candidate.

    Attributes:
        changes: the searched hyperparameters with their values; empty for a method with nothing to choose.
        values: all hyperparameters of the method.
        per_seed: mean over clients of the final validation accuracy, by seed; empty where training diverged.
        run_ids: MLflow's of its runs, by seed; the same.
    """

    changes: dict[str, Any]
    values: dict[str, Any]
    per_seed: list[float]
    run_ids: list[str]

    @property
    def validation(self) -> float | None:
        """Mean over the seeds; None where training diverged."""
        return fmean(self.per_seed) if self.per_seed else None


@dataclass(frozen=True)
class Tuning:
    """All trials of a tuning.

    Attributes:
        tune: what was searched.
        settings: of the experiment, shared by all trials.
        key: identifies the tuning.
        run_id: of its MLflow run.
        methods: trials by registry name, in order; the first has the configured values.
    """

    tune: dict[str, Any]
    settings: dict[str, Any]
    key: str
    run_id: str
    methods: dict[str, list[Trial]]

    @property
    def seeds(self) -> list[int]:
        """Of every trial."""
        return list(self.tune["seeds"])

    def tuned(self, experiment: str) -> Tuned:
        """Return what comparisons of the experiment read."""
        chosen = {method: (highest(trials), trials) for method, trials in self.methods.items()}
        return Tuned(
            experiment=experiment,
            seeds=self.seeds,
            settings=self.settings,
            key=self.key,
            run_id=self.run_id,
            methods={
                method: TunedMethod(
                    values=best.values,
                    configured=trials[0].values,
                    validation=best.validation or 0.0,
                    configured_validation=trials[0].validation,
                    trials=len(trials),
                    run_ids=best.run_ids,
                )
                for method, (best, trials) in chosen.items()
            },
        )


def highest(trials: Sequence[Trial]) -> Trial:
    """Return the trial of highest validation accuracy; the first of equals, so the configured values where they are."""
    return max(trials, key=lambda trial: trial.validation or 0.0)


def comparable(name: str, content: Mapping[str, Any], tune: Tune, experiment: Experiment) -> Tuning:
    """Return a tuning from plain values, and refuse one that was made with other settings.

    Args:
        name: the tuning's.
        content: what the trials left.
        tune: its settings now.
        experiment: what is tuned, now.

    Raises:
        InputError: naming what differs.
    """
    methods = {method: [Trial(**trial) for trial in trials] for method, trials in content["methods"].items()}
    made = Tuning(**{**content, "methods": methods})
    settings = tune.applied(experiment).shared()
    then, now = flat({"tune": made.tune, **made.settings}), flat({"tune": tune.model_dump(), **settings})
    different = sorted(entry for entry in then.keys() | now.keys() if then.get(entry) != now.get(entry))
    if different:
        changes = ", ".join(f"{entry}={then.get(entry)!r}, now {now.get(entry)!r}" for entry in different)
        raise InputError(
            f"The trials of {name} were made with other settings ({changes}); run it again with these, or put the "
            "settings back."
        )
    return made


def build(name: str, tuning: Tuning) -> Report:
    """Return the report on a tuning."""
    return Report(
        name=name,
        html=page.render(
            "tune.html.jinja",
            name=name,
            facts=_facts(tuning),
            summary=summary(tuning),
            table=Markup(tables.to_html(table(tuning))),
            notes=notes(tuning),
            settings={key: _text(value) for key, value in flat(tuning.settings).items()},
            spaces=_spaces(tuning),
            trials=Markup(tables.to_html(trial_table(tuning))),
        ),
        markdown=_markdown(name, tuning),
        latex=_latex(name, tuning),
        console=_console(name, tuning),
        figures={},
        data={
            "trials.csv": _csv(tuning),
            "hyperparameters.json": to_text(tuning.tuned(name.removeprefix(TUNE))),
        },
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
        f"{title_of(method)}'s {', '.join(found)}"
        for method, trials in searched.items()
        if (found := _edges(tuning.tune["spaces"][method], highest(trials).changes))
    ]
    beyond = f"At the end of what was tried, so that better ones may lie beyond: {'; '.join(edges)}." if edges else ""
    few = "" if len(tuning.seeds) > 1 else "With one seed, neighbours are often not different."
    return " ".join(filter(None, (first, beyond, few)))


def _edges(space: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """Return the chosen values that are the smallest or largest number tried."""
    found = []
    for name, value in chosen.items():
        tried = [space[name]["low"], space[name]["high"]] if isinstance(space[name], Mapping) else space[name]
        numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            found.append(f"{name}={_text(value)}")
    return found


def table(tuning: Tuning) -> "pd.DataFrame":
    """Return one row a method, as text."""
    import pandas as pd

    rows = []
    for method, trials in tuning.methods.items():
        best, first = highest(trials), trials[0]
        gain = None if first.validation is None else (best.validation or 0.0) - first.validation
        rows.append(
            {
                "Method": title_of(method),
                "Chosen": _changes(best),
                "Validation (%)": _validation(best),
                "Configured": _changes(first),
                "Configured: validation (%)": _validation(first),
                "Gain (points)": tables.signed(gain, None) if first.changes else tables.NONE,
                "Candidates": str(len(trials)),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def trial_table(tuning: Tuning) -> "pd.DataFrame":
    """Return one row a trial: its values, its validation accuracy, and what finds its runs in MLflow."""
    import pandas as pd

    rows = [
        {
            "Method": title_of(method),
            "Trial": str(number),
            "Values": _changes(trial),
            "Validation (%)": _validation(trial),
            "Chosen": "chosen" if trial is highest(trials) else "",
            "MLflow runs": ", ".join(filter(None, trial.run_ids)) or tables.NONE,
        }
        for method, trials in tuning.methods.items()
        for number, trial in enumerate(trials, 1)
    ]
    return pd.DataFrame(rows, dtype=object)


def notes(tuning: Tuning) -> dict[str, str]:
    """Return what the columns of `table` mean, by column."""
    seeds = len(tuning.seeds)
    spread = f", then over {seeds} seeds; ± is the standard deviation over them" if seeds > 1 else "; one seed"
    return {
        "Chosen": "the candidate with the method's highest validation accuracy, the first of equals. Test accuracy "
        "chooses nothing.",
        "Validation": "of each client's own model at the end of the round on images that no client is tested on; mean "
        f"over clients and the last five evaluations{spread}. The highest of several is too good: compare methods on "
        "test data, with other seeds.",
        "Configured": "what stands under conf/; always the first candidate.",
        "Candidates": f"at most {tuning.tune['trials']} for each method; fewer where there are no more, one where "
        "there is nothing to choose. Diverged: training did not stay finite.",
    }


def _changes(trial: Trial) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in trial.changes.items()) or tables.NONE


def _validation(trial: Trial) -> str:
    if trial.validation is None:
        return "diverged"
    return tables.percent(trial.validation, stdev(trial.per_seed) if len(trial.per_seed) > 1 else None)


def _facts(tuning: Tuning) -> list[str]:
    settings, seeds = tuning.settings, tuning.seeds
    return [
        f"private {settings['private']['source']}",
        f"{settings['clients']} clients, {settings['partition']['scheme'].replace('_', ' ')}",
        f"{settings['rounds']} rounds",
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
    ]


def _spaces(tuning: Tuning) -> dict[str, dict[str, str]]:
    """Return what may be tried, by the method's title."""
    return {
        title_of(method): {name: _tried(tried) for name, tried in space.items()}
        for method, space in tuning.tune["spaces"].items()
        if method in tuning.methods
    }


def _tried(tried: Any) -> str:
    if not isinstance(tried, Mapping):
        return _text(tried)
    return f"{_text(tried['low'])} to {_text(tried['high'])}{', equal by ratio' * bool(tried.get('log'))}"


def _markdown(name: str, tuning: Tuning) -> str:
    spaces = {f"{method}: {key}": text for method, space in _spaces(tuning).items() for key, text in space.items()}
    parts = [
        f"# {name}",
        f"**{summary(tuning)}**",
        " · ".join(_facts(tuning)),
        tables.to_markdown(table(tuning)),
        "\n".join(f"- *{column}:* {text}" for column, text in notes(tuning).items()),
        "## What was searched",
        "\n".join(f"- {key}: {text}" for key, text in spaces.items()) or "Nothing.",
        "## Trials",
        tables.to_markdown(trial_table(tuning)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(name: str, tuning: Tuning) -> str:
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *textwrap.wrap(
            rf"\caption{{{tables.latex_escape(summary(tuning))}}}", 110, break_long_words=False, break_on_hyphens=False
        ),
        rf"\label{{tab:{name.replace('_', '-')}}}",
        tables.to_latex(table(tuning)).strip(),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _console(name: str, tuning: Tuning) -> str:
    shown = table(tuning)[["Method", "Chosen", "Validation (%)", "Gain (points)"]]
    shown = shown.replace(regex={tables.MINUS: "-", tables.NONE: "-"})
    shown["Chosen"] = [textwrap.shorten(text, 50, placeholder="…") for text in shown["Chosen"]]
    head = [name, *textwrap.wrap(summary(tuning), tables.CONSOLE), ""]
    return "\n".join([*head, shown.to_string(index=False)]) + "\n"


def _csv(tuning: Tuning) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "trial", "values", "validation", "chosen", "run_ids"])
    for method, trials in tuning.methods.items():
        for number, trial in enumerate(trials, 1):
            chosen = int(trial is highest(trials))
            values = _changes(trial) if trial.changes else ""
            writer.writerow([method, number, values, trial.validation, chosen, " ".join(trial.run_ids)])
    return text.getvalue()


def _text(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
