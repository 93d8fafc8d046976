"""The result of a tuning, which comparisons read: the chosen hyperparameters of each method, and their settings.

A comparison uses tuned hyperparameters for all its methods or for none; see `resolve`.
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
"""Settings that may differ between a tuning and a comparison: amount of training and evaluation, and the machine."""


@dataclass(frozen=True)
class TunedMethod:
    """The chosen hyperparameters of one method, and the hyperparameters under conf/, which are the first candidate.

    Attributes:
        values: the chosen hyperparameters.
        configured: the hyperparameters under conf/.
        validation: mean validation accuracy with `values`, in 0..1.
        configured_validation: mean validation accuracy with `configured`, in 0..1; None if their training diverged.
        trials: the number of candidates.
        run_ids: MLflow's ids of the runs with `values`, one per seed; empty strings without tracking.
    """

    values: dict[str, Any]
    configured: dict[str, Any]
    validation: float
    configured_validation: float | None
    trials: int
    run_ids: list[str]


@dataclass(frozen=True)
class Tuned:
    """The stored result of a tuning.

    Attributes:
        experiment: the section of the tuned experiment.
        seeds: the seeds of every candidate.
        settings: the settings of the experiment that all methods share.
        key: a hash of the settings, the search spaces and the source code, which is also a tag of the MLflow run.
        run_id: the id of the tuning's run in MLflow.
        methods: the results by method.
    """

    experiment: str
    seeds: list[int]
    settings: dict[str, Any]
    key: str
    run_id: str
    methods: dict[str, TunedMethod]


def resolve(experiment: Experiment, hyperparameters: str, *, name: str, methods: Sequence[str]) -> Experiment:
    """Return the experiment with the hyperparameters to use: unchanged if ``configured``, else the tuned ones.

    Args:
        experiment: the experiment.
        hyperparameters: the text of the tuning's result file; empty if there is none.
        name: the section of the experiment.
        methods: the methods that are run.

    Raises:
        InputError: if a method does not support a setting. If `experiment.hyperparameters` is ``tuned``: also if a
            method has no tuned values, or if the tuning had other settings.
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
    """Return the result of a tuning from its JSON text. Raises InputError, with `file` and `command` in the message."""
    try:
        return validation.parse(Tuned, json.loads(text), file)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, InputError) else f"{file} is not valid JSON."
        raise InputError(f"{reason} Run `{command}` again.") from None


def to_text(tuned: Tuned) -> str:
    return json.dumps(asdict(tuned), indent=1, ensure_ascii=False) + "\n"
