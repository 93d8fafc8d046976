"""What a tuning leaves for comparisons: each method's chosen hyperparameters, and what they were chosen for.

A comparison takes the values of all its methods from here, or of none: see `resolve`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ktpfl_pipeline.config import checks
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import TUNE
from ktpfl_pipeline.core import validation
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.methods import create

FREE = ("seeds", "rounds", "evaluate_every", "evaluate_last", "evaluation", "theorem_samples", "compute")
"""Settings in which a comparison may differ from what was tuned for: how much is run, and on what machine."""


@dataclass(frozen=True)
class TunedMethod:
    """The hyperparameters chosen for one method, and those configured under conf/, the first candidate.

    Mean validation accuracies are in 0..1; None where training with the configured values diverged. `trials` is the
    number of candidates. `run_ids` are MLflow's of the chosen one, one a seed; empty texts without tracking.
    """

    values: dict[str, Any]
    configured: dict[str, Any]
    validation: float
    configured_validation: float | None
    trials: int
    run_ids: list[str]


@dataclass(frozen=True)
class Tuned:
    """The stored result of a tuning: what was chosen by method, for which settings of an experiment.

    The key is a hash of these, of what was searched and of the source: the tag ``key`` of the tuning's MLflow run, with
    the id `run_id`.
    """

    experiment: str
    seeds: list[int]
    settings: dict[str, Any]
    key: str
    run_id: str
    methods: dict[str, TunedMethod]


def resolve(experiment: Experiment, hyperparameters: str, *, name: str, methods: Sequence[str]) -> Experiment:
    """Return the experiment with the hyperparameters that its methods run with: as configured, or all as tuned.

    `hyperparameters` is what a tuning of it left, as text; empty where there was none. An `InputError` says that a
    method does not support a setting, has no tuned values although they are wanted, or was tuned for something else.
    """
    checks.check_methods(name, experiment, methods)
    if experiment.hyperparameters == "configured":
        return experiment
    file = f"data/05_model_input/{name}/hyperparameters.json"
    command = f"kedro run --pipelines={TUNE}{name}"
    configured = f"set {name}.hyperparameters to configured"
    if not hyperparameters:
        raise InputError(
            f"{name}.hyperparameters is tuned, and there is no {file}; run `{command}` first, in the same environment, "
            "or set it to configured."
        )
    tuned = parse(file, hyperparameters, command)
    then, now = ({key: s[key] for key in s if key not in FREE} for s in (tuned.settings, experiment.shared()))
    if different := differences(then, now):
        raise InputError(
            f"The hyperparameters of {name} were tuned for other settings ({different}); run `{command}` with these, "
            f"put the settings back, or {configured}."
        )
    values = {}
    for method in methods:
        if method not in tuned.methods:
            raise InputError(
                f"{file} has no hyperparameters of {method}, and tuned methods are not compared with untuned ones; run "
                f"`{command}` again, or {configured}."
            )
        given = asdict(method_of(experiment, method))
        if different := differences(tuned.methods[method].configured, given):
            raise InputError(
                f"The hyperparameters of {name} were tuned from other values ({method}: {different}); run `{command}` "
                f"again, restore the old values, or {configured} to use the values under methods."
            )
        values[method] = tuned.methods[method].values
        create(method, values[method], f"{file}: methods.{method}.values")
    return replace(experiment, methods=values)


def parse(file: str, text: str, command: str) -> Tuned:
    """Return what the text of a file says; an `InputError` names the `file` and the `command` that makes it."""
    try:
        return validation.parse(Tuned, json.loads(text), file)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, InputError) else f"{file} is not valid JSON."
        raise InputError(f"{reason} Run `{command}` again.") from None


def to_text(tuned: Tuned) -> str:
    """Return what `parse` reads."""
    return json.dumps(asdict(tuned), indent=1, ensure_ascii=False) + "\n"
