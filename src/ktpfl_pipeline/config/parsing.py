"""Parse conf/ and --params into experiments, sweeps and tunings, before the first node runs.

**Single values are checked in all sections. Combinations of values are checked only in the sections that the requested
pipelines use.** So a typo is found in any section, and an experiment can be changed although other sections inherit or
sweep it. `check` checks single values, `used` checks combinations.

An unknown key is an error. Each `InputError` names the value, the allowed values and how to fix it.

In all functions, `name` is the name of a section, `values` is its content, and `parameters` are all sections by name.
`together` says whether combinations of values are checked in addition to single values.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from ktpfl_pipeline.config import checks, paths
from ktpfl_pipeline.config.inheritance import MODELS, WHAT, deep_merge, inherited, kind_of
from ktpfl_pipeline.config.schema import ALL, CHOICE, REPLACED, Experiment
from ktpfl_pipeline.config.studies import PAPER, SWEEP, TUNE, CellSettings, Paper, Range, Sweep, Tune
from ktpfl_pipeline.core.errors import InputError, nearest, written
from ktpfl_pipeline.core.validation import Group
from ktpfl_pipeline.core.validation import parse as parse_group
from ktpfl_pipeline.methods import METHODS, create, find


def merged(configured: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of conf/, updated with ``--params`` (`runtime`), and with the settings that they inherit.

    Raises InputError if the name of a section is not a string, if `runtime` has an unknown section, or if a section
    cannot inherit.
    """
    if odd := [name for name in configured if not isinstance(name, str)]:
        raise InputError(
            f"A section in conf/ is called {odd[0]!r}. Names of sections must be strings: give it a name with letters."
        )
    result = dict(configured)
    for name, value in runtime.items():
        if name not in result:
            named = [each for each in result if not each.startswith("_")]
            first = next(iter(experiments(named)), "hetero_digits")
            otherwise = f"write the experiment first, as in {first}.{name}=..., with one of {', '.join(named)}."
            hint = nearest(name, result, otherwise)
            raise InputError(f"--params {name}=... names no experiment and no sweep; {hint}")
        result[name] = deep_merge(result[name], paths.rejoined(value))
    return inherited(result)


def experiments(parameters: Collection[str]) -> list[str]:
    return [name for name in parameters if name != PAPER and not name.startswith((SWEEP, TUNE, "_"))]


def check(parameters: Mapping[str, Any]) -> None:
    """Check single values in every section: keys, types, ranges and names. `used` checks combinations of values.

    All sections are first checked for what is known without torch, whose import takes seconds.
    """
    found = {name: spelled(name, parameters[name]) for name in experiments(parameters)}
    for name, values in parameters.items():
        if kind := kind_of(name):
            _section(MODELS[kind], name, values, WHAT[kind])
    for name, experiment in found.items():
        _check_values(name, experiment, [*experiment.methods, *experiment.named])
    for name, values in parameters.items():
        if name.startswith(SWEEP):
            parse_sweep(name, values, parameters, together=False)
        elif name.startswith(TUNE):
            parse_tune(name, values, parameters)
        elif name == PAPER:
            parse_paper(values, parameters)


def used(named: Collection[str], parameters: Mapping[str, Any]) -> Iterator[tuple[str, Experiment]]:
    """Check combinations of values in the sections `named`, which a run uses, and yield the experiments that it runs.

    These are the experiments among the sections, by name, and the experiments of each variant of the sweeps and of the
    paper's study. A sweep with tuned hyperparameters is an error.
    """
    for name in experiments(parameters):
        if name in named:
            experiment = parse(name, parameters[name])
            checks.check_here(name, experiment)
            checks.check_methods(name, experiment, experiment.named)
            yield name, experiment
    for name in [each for each in named if each.startswith(SWEEP)]:
        sweep = parse_sweep(name, parameters[name], parameters)
        for variant in variants(name, sweep, parameters):
            checks.check_configured(sweep.experiment, variant, name)
            yield sweep.experiment, variant
    if PAPER in named:
        paper = parse_paper(parameters[PAPER], parameters)
        for part in paper.chosen():
            yield from ((name, settings) for name, _, settings in paper_columns(part, paper, parameters))


def form(name: str, values: Any) -> Experiment:
    """Return an experiment from its section. Keys, types and ranges are checked, but not whether names exist."""
    return _section(Experiment, name, values, "an experiment")


def spelled(name: str, values: Any) -> Experiment:
    """Return an experiment from its section. Names are checked too; torch is imported only for names of users' own."""
    experiment = form(name, values)
    checks.check_names(name, experiment)
    return experiment


def parse(name: str, values: Any, together: bool = True) -> Experiment:
    """Return an experiment from its section, with its values, names and hyperparameters checked."""
    experiment = spelled(name, values)
    if together:
        checks.check_together(name, experiment)
        checks.check_methods(name, experiment, [])
    _check_values(name, experiment, [*experiment.methods, *experiment.named])
    return experiment


def _check_values(name: str, experiment: Experiment, methods: Collection[str]) -> None:
    """Check the hyperparameters of `methods` in an experiment. Methods without settings there have their defaults."""
    for method in methods:
        given = experiment.methods.get(method, {})
        if method not in METHODS and (meant := paths.with_colon(method, given)):
            raise InputError(
                f"{name}.methods.{method} names no method. Write a method of your own with a colon before its class, "
                f"for example {name}.methods.{meant}."
            )
        create(method, given, f"{name}.methods.{method}")


def parse_sweep(name: str, values: Any, parameters: Mapping[str, Any], together: bool = True) -> Sweep:
    """Return a sweep from its section, with the experiment at each value of the sweep checked."""
    sweep = _section(Sweep, name, values, "a sweep")
    checks.check_known(f"{name}.experiment", sweep.experiment, experiments(parameters))
    for method in sweep.methods:
        checks.check_extension(f"{name}.methods", method, METHODS, find)
    changed = paths.split(sweep.parameter)
    if changed[0] != "methods" and any(changed[: len(path)] == path for path in map(paths.split, CHOICE)):
        raise InputError(
            f"{name}.parameter is {sweep.parameter!r}, and no run depends on this setting; choose one that changes "
            "runs, for example training.epochs."
        )
    found = variants(name, sweep, parameters, together)
    if not together:
        return sweep
    for variant in found:
        checks.check_methods(sweep.experiment, variant, sweep.methods)
        _check_values(sweep.experiment, variant, sweep.methods)
    if not any(map(sweep.touches, sweep.methods)):
        group, *path = paths.split(sweep.parameter)
        touched = path[0] if group == "methods" else "a method that exchanges predictions"
        raise InputError(
            f"{name}.parameter is {sweep.parameter!r}, which changes none of its methods, {', '.join(sweep.methods)}; "
            f"add {touched} to {name}.methods."
        )
    return sweep


def variants(name: str, sweep: Sweep, parameters: Mapping[str, Any], together: bool = True) -> list[Experiment]:
    found = []
    for value in sweep.values:
        change = value
        for part in reversed(paths.split(sweep.parameter)):
            change = {part: change}
        with checks.saying(_cannot_set(name, sweep, value)):
            found.append(parse(sweep.experiment, deep_merge(parameters[sweep.experiment], change), together))
    return found


def _cannot_set(name: str, sweep: Sweep, value: Any) -> str:
    return f"{name} cannot set {sweep.parameter} to {value!r}: "


def sweep_cells(name: str, sweep: Sweep, parameters: Mapping[str, Any]) -> list[CellSettings]:
    return [
        CellSettings(
            section=sweep.experiment,
            label=sweep.label(value) if sweep.touches(method) else "",
            method=method,
            experiment=variant,
            value=value,
            where=_cannot_set(name, sweep, value),
        )
        for value, variant in zip(sweep.values, variants(name, sweep, parameters), strict=True)
        for method in sweep.methods
    ]


def parse_paper(values: Any, parameters: Mapping[str, Any]) -> Paper:
    """Return the paper's tables and figures from their section. `paper_columns` checks the changes of the columns."""
    paper = _section(Paper, PAPER, values, "the paper's tables and figures")
    parts = {name: part for name, part in paper.parts.items() if part is not None}
    for experiment in (name for name, change in paper.experiments.items() if change is not None):
        checks.check_known(f"An experiment of {PAPER}.experiments", experiment, experiments(parameters))
    for only in paper.only:
        checks.check_known(f"{PAPER}.only", only, [ALL, *parts])
    for name, part in parts.items():
        for experiment in part.experiments:
            checks.check_known(f"{PAPER}.parts.{name}.experiments", experiment, experiments(parameters))
        for method in part.methods:
            checks.check_extension(f"{PAPER}.parts.{name}.methods", method, METHODS, find)
    return paper


def paper_columns(name: str, paper: Paper, parameters: Mapping[str, Any]) -> list[tuple[str, str, Experiment]]:
    """Return the columns of the paper's part `name`: the experiment's section, the column's name, and the settings."""
    part, found = paper.chosen()[name], []
    seeds = {"seeds": part.seeds or paper.seeds}
    for experiment in part.experiments:
        own = paper.experiments.get(experiment) or {}
        for label, change in part.columns.items():
            if change is None:
                continue
            with checks.saying(f"{PAPER}.parts.{name}.columns, {label!r}: "):
                section = reduce(deep_merge, (own, part.settings, change, seeds), parameters[experiment])
                settings = parse(experiment, paper.from_files(section))
                checks.check_configured(experiment, settings, PAPER)
                checks.check_methods(experiment, settings, part.methods)
                _check_values(experiment, settings, part.methods)
            found.append((experiment, label, settings))
    return found


def paper_cells(paper: Paper, parameters: Mapping[str, Any]) -> list[CellSettings]:
    """Return the cells of the requested parts, column by column.

    If the experiment has no validation samples, methods that fit something on validation samples get the share
    `paper.validation_share` of the training samples for validation.
    """
    found = []
    for name, part in paper.chosen().items():
        for section, label, settings in paper_columns(name, paper, parameters):
            partition = replace(settings.partition, validation_share=paper.validation_share)
            for method in part.methods:
                lacks = find(method).kind.fits_validation and not settings.partition.validation_share
                asked = replace(settings, partition=partition) if lacks else settings
                found.append(CellSettings(section, label, method, asked, label, name))
    return found


def parse_tune(name: str, values: Any, parameters: Mapping[str, Any]) -> Tune:
    """Return a tuning from its section. Each value of its spaces, and both ends of each range, are checked."""
    tune = _section(Tune, name, values, "a tuning")
    tuned = name.removeprefix(TUNE)
    checks.check_known(f"The experiment of {name}", tuned, experiments(parameters))
    configured = form(tuned, parameters[tuned]).methods
    for method, space in tune.spaces.items():
        checks.check_extension(f"A method of {name}.spaces", method, METHODS, find)
        for hyperparameter, tried in space.items():
            where = f"{name}.spaces.{method}.{hyperparameter}"
            for value in _tried(where, tried):
                with checks.saying(f"{where} cannot be {value!r}: "):
                    create(method, {**configured.get(method, {}), hyperparameter: value})
    return tune


def _tried(where: str, tried: Any) -> list[Any]:
    """Return the values of a list, or the two ends of a range."""
    if isinstance(tried, Mapping):
        ends = parse_group(Range, tried, where)
        if ends.low >= ends.high:
            raise InputError(f"{where} goes from {ends.low} to {ends.high}; low must be below high.")
        if ends.log and ends.low <= 0:
            raise InputError(f"{where}.low is {ends.low}; with log it must be above 0.")
        return [ends.low, ends.high]
    if not isinstance(tried, list) or not tried:
        allowed = "a list of values, or a range {low: ..., high: ...}"
        raise InputError(f"{where} is {written(tried)}; it must be {allowed}.")
    return tried


def method_of(experiment: Experiment, method: str) -> Any:
    return create(method, experiment.methods.get(method, {}))


def _section(kind: type[Group], name: str, values: Any, what: str) -> Group:
    """Return the section `name` as an object of the class `kind`. Messages call it `what`."""
    try:
        repr(values)
    except (ValueError, RecursionError):  # no message could contain the value
        raise InputError(f"{name} has a number of more than 4,300 digits, or contains itself. Correct it.") from None
    if not isinstance(values, Mapping):
        raise InputError(f"{name} is {written(values)}; it must be a section with the settings of {what}.")
    compute = values.get("compute")
    for removed in [each for each in REPLACED if isinstance(compute, Mapping) and each in compute]:
        raise InputError(f"{name}.compute.{removed} does not exist any more. {REPLACED[removed]}")
    return parse_group(kind, values, name)
