"""The check of Theorem 1 on a method's final models, as a figure and a table."""

from functools import partial
from statistics import fmean

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import benign, mean_over_clients
from ktpfl_pipeline.analysis.theorem import MIXTURES
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.model import Block, Column, Picture, Table
from ktpfl_pipeline.reports.numbers import Entry, mean
from ktpfl_pipeline.reports.words import aggregates

TOLERANCE = 1e-6
"""The difference in nats up to which a larger loss still counts as equal."""


def blocks(result: MethodResult) -> list[Block]:
    """Return the figure and the table of the check; nothing unless every run was checked."""
    checks = [run.theorem for run in result.runs if run.theorem is not None]
    if len(checks) < len(result.runs):
        return []
    figure = (
        f"A dot is a client of {result.title}'s final models with one seed. Across, the smaller loss of its own model "
        "and of the average of all predictions; upward, the loss of the mixture that fits best (filled) and of the "
        "learned coefficients (open). A mixture on or below the line is at least as good as both."
    )
    if aggregates(result):
        figure += " The method learned them for models; here they weigh predictions, as in the theorem."
    largest = max(value for check in checks for value in check.certificate)
    fit, test = (f"{fmean(n[half] for check in checks for n in check.samples):.0f}" for half in (0, 1))
    caption = (
        "Theorem 1: for each client, some mixture of the clients' models is at least as good as its own model and as "
        f"their average. The best one is fitted by maximum likelihood to half of each client's test samples ({fit} on "
        f"average). There the theorem must hold; it states nothing about the other half ({test}) and about the learned "
        f"coefficients. Certificate: no mixture fits any client better by more than {largest:.1e} nats. At least as "
        f"good: worse by at most {TOLERANCE:.0e} nats, plus the certificate on the fitted half. Means over "
        "clients, ± the standard deviation over seeds."
    )
    return [Picture("theorem", figures.theorem(result), figure), *table(result).captioned(caption)]


def table(result: MethodResult) -> Table:
    """Return the check on a method's final models, one row per mixture that every run has.

    Losses are negative log-likelihoods in nats. The last two columns count the clients, over all seeds, whose mixture
    is at least as good as both their own model and the average of all models, within `TOLERANCE`. On the half of the
    samples to which the best mixture was fitted, the client's certificate is added to the tolerance.
    """
    checks = [(run.theorem, run.adversaries) for run in result.runs if run.theorem is not None]

    def by_seed(mixture: str, of: str) -> list[float]:
        return [mean_over_clients(getattr(check, of)[mixture], adversaries) for check, adversaries in checks]

    def loss(mixture: str, half: str) -> Entry:
        return mean(by_seed(mixture, half), "{:.3f}".format)

    def no_worse(mixture: str, half: str) -> Entry:
        held: list[float] = []  # 1 if the mixture is at least as good
        for check, liars in checks:
            by = getattr(check, half)
            slack = check.certificate if half == "fit" else [0.0] * len(check.certificate)
            losses = zip(by[mixture], slack, by["own"], by["average"], strict=True)
            held += benign([loss <= min(bounds) + more + TOLERANCE for loss, more, *bounds in losses], liars)
        return None if mixture in ("own", "average") else f"{sum(held):.0f} of {len(held)}"

    shown = [
        Column("mixture", "Mixture", value=str.capitalize),
        Column("fit_loss", "Loss, fitted half", "nats", value=partial(loss, half="fit")),
        Column("test_loss", "Loss, other half", "nats", value=partial(loss, half="test")),
        Column("test_accuracy", "Accuracy, other half", "%", value=lambda mixture: mean(by_seed(mixture, "accuracy"))),
        Column("fit_no_worse", "No worse, fitted half", "clients", value=partial(no_worse, half="fit")),
        Column("test_no_worse", "No worse, other half", "clients", value=partial(no_worse, half="test")),
    ]
    return Table.of("theorem", shown, [each for each in MIXTURES if all(each in check.fit for check, _ in checks)])
