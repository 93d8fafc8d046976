"""The figure of Theorem 1, with a mark per client."""

from typing import Any

from matplotlib.figure import Figure

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.reports.figures.base import WIDTH, blank, legend_above, styled
from ktpfl_pipeline.reports.style import BLUE, MUTED, VERMILION

THEOREM = {"fitted": ("fitted mixture", BLUE, "o"), "learned": ("learned coefficients", VERMILION, "D")}
"""The mixtures of `analysis.theorem.check` whose losses are compared with the bound: title, color and marker."""


@styled
def theorem(result: MethodResult) -> Figure:
    """Draw the check of Theorem 1: for each client and seed, the loss of a mixture against its bound.

    The x-axis is the smaller loss of the client's own model and the average of all clients' predictions. The y-axis is
    the loss of the fitted mixture, and of the learned coefficients. Mixtures on or below the diagonal satisfy the
    bound. Raises ValueError if no run of the method was checked.
    """
    checks = [run.theorem for run in result.runs if run.theorem is not None]
    if not checks:
        raise ValueError(f"Theorem 1 was not checked for {result.title}.")
    figure = blank(0.5 * WIDTH + 0.5)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    shown, handles = list[float](), dict[str, Any]()
    for axes, title, half in zip(panels, ("The half that was fitted", "The other half"), ("fit", "test"), strict=True):
        halves: list[dict[str, list[float]]] = [getattr(check, half) for check in checks]
        bound = [min(pair) for each in halves for pair in zip(each["own"], each["average"], strict=True)]
        for mixture, (name, color, marker) in THEOREM.items():
            if any(mixture not in each for each in halves):
                continue
            losses = [loss for each in halves for loss in each[mixture]]
            face = color if mixture == "fitted" else "none"
            look: Any = {"markersize": 4.5, "alpha": 0.75, "markeredgewidth": 0.9, "markerfacecolor": face}
            (handles[name],) = axes.plot(bound, losses, marker, color=color, label=name, **look)
            shown += [*bound, *losses]
        axes.set_title(title)
    reach = (0.0, 1.05 * max(shown))
    for axes in panels:
        axes.plot(reach, reach, color=MUTED, linewidth=0.8, zorder=1)
        axes.set(xlim=reach, ylim=reach, xlabel="better of own model and average, loss (nats)", aspect="equal")
        axes.grid()
        axes.tick_params(length=0)
    panels[0].set_ylabel("mixture, loss (nats)")
    legend_above(figure, handles, len(handles))
    return figure
