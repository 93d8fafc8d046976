"""Optuna's own plots of a tuning: accuracy by trial, by the value of each hyperparameter, and their importance."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.reports.figures.base import PERCENT, WIDTH, plain, styled
from ktpfl_pipeline.reports.style import BLUE, MUTED, PAPER, RULE, look, readable

if TYPE_CHECKING:
    from optuna import Study

TARGET = "Validation accuracy"
FEWEST = 4
"""Finished trials from which on importance is estimated."""


def optuna_study(name: str, space: Mapping[str, Any], cells: Sequence[Cell]) -> "Study":
    """Return the candidates of a method as a study of Optuna; diverged ones have failed.

    Args:
        name: the method's title.
        space: what may be tried for each hyperparameter, as the tuning's settings have it.
        cells: the candidates of the method.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", study_name=name)
    distributions = {
        entry: _distribution(tried, [cell.value[entry] for cell in cells]) for entry, tried in space.items()
    }
    for cell in cells:
        score, states = cell.score, optuna.trial.TrialState
        made = optuna.trial.create_trial(
            state=states.FAIL if score is None else states.COMPLETE,
            params={
                entry: cell.value[entry] if _numeric([cell.value[entry]]) else str(cell.value[entry]) for entry in space
            },
            distributions=distributions,
            value=score,
        )
        study.add_trial(made)
    return study


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _distribution(tried: Any, values: Sequence[Any]) -> Any:
    """Return an interval that holds all values, or their choices where one is not a number."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    ends = [tried["low"], tried["high"]] if isinstance(tried, Mapping) else list(tried)
    known = [*ends, *values]
    if not _numeric(known):
        return CategoricalDistribution(list(dict.fromkeys(map(str, known))))
    log = bool(isinstance(tried, Mapping) and tried.get("log")) and min(known) > 0
    return FloatDistribution(float(min(known)), float(max(known)), log=log)


@styled
def search_history(studies: Sequence["Study"], methods: Sequence[str]) -> Figure:
    """Draw the validation accuracy of each trial, and the best so far, of every method (registry names)."""
    from optuna.visualization.matplotlib import plot_optimization_history

    axes = _drawn(plot_optimization_history, list(studies), target_name=TARGET)[0]
    colors = {study.study_name: readable(look(method).colour) for study, method in zip(studies, methods, strict=True)}
    named: dict[str, Any] = {}
    artists: list[Any] = [*axes.lines, *axes.collections]
    for artist in artists:
        label = str(artist.get_label())
        title = label.partition(" of ")[2] or studies[0].study_name
        if not label.startswith("_") and title in colors:
            artist.set_color(colors[title])
            named[f"{title}, best so far" if artist in axes.lines else title] = artist
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    figure = _finished(axes.figure)
    figure.legend(named.values(), named.keys(), loc="outside upper left", ncols=3)
    return figure


@styled
def search_slices(study: "Study") -> Figure:
    """Draw the validation accuracy of a method's trials by the value of each hyperparameter."""
    from optuna.visualization.matplotlib import plot_slice

    return _finished(_drawn(plot_slice, study, target_name=TARGET)[0].figure)


@styled
def search_importances(study: "Study") -> Figure:
    """Draw how much each hyperparameter of a method explains of the variance of validation accuracy (fANOVA)."""
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization.matplotlib import plot_param_importances

    axes = _drawn(plot_param_importances, study, evaluator=FanovaImportanceEvaluator(seed=0), target_name=TARGET)[0]
    for bar in axes.patches:
        bar.set_color(BLUE)
    figure = _finished(axes.figure)
    axes.grid(visible=False)
    axes.set(xlabel="Importance", ylabel="")
    return figure


def importance_is_known(study: "Study") -> bool:
    """Return whether there are two hyperparameters, enough finished trials, and any difference between these."""
    import optuna

    finished = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    values = {trial.value for trial in finished}
    return len(finished) >= FEWEST and len(values) > 1 and len(finished[0].params) > 1


def _drawn(plot: Any, *args: Any, **options: Any) -> list[Axes]:
    """Return the axes of a plot of Optuna, whose figure pyplot then forgets."""
    import matplotlib.pyplot as plt

    constrained: Any = {"figure.constrained_layout.use": True}  # color bars are made for the layout of their figure
    with mpl.rc_context(constrained), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the plots are experimental in name
        found = plot(*args, **options)
    axes = list(np.ravel(found))
    plt.close(axes[0].figure)
    return axes


def _finished(figure: Any) -> Figure:
    """Apply the style of reports to a figure of Optuna."""
    figure.set_size_inches(WIDTH, 2.9)
    figure.set_facecolor(PAPER)
    for axes in figure.axes:
        axes.set_facecolor(PAPER)
        axes.set_title("")
        axes.xaxis.label.set(size=8.5, color=MUTED)
        axes.yaxis.label.set(size=8.5, color=MUTED)
        if axes.get_label() == "<colorbar>":
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            continue
        if axes.get_legend() is not None:
            axes.get_legend().remove()
        plain(axes, grid="y")
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.grid(visible=False, axis="x")
        if axes.get_xscale() == "log":
            axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
        if axes.get_ylabel() == TARGET or axes.get_shared_y_axes().joined(axes, figure.axes[0]):
            axes.yaxis.set_major_formatter(PERCENT)
    figure.suptitle("")
    found: Figure = figure
    return found
