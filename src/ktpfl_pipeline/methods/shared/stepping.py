"""Step selection: how far a client moves from its own model toward a mixed one, by validation samples.

One client's dozen validation samples are few, but twenty clients together have many. So a step is evaluated on a
client's own samples plus a part of all clients' samples, over all rounds so far: the samples that only the longer step
classifies correctly against those that only the own model does. The loss is not used, because soft teachers raise it
even where they raise the accuracy (docs/LOG.md). A step must be ahead by more than chance: where clients have little in
common, a mixed model is a worse start for local training, which shows too late.
"""

import math

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import WEIGHS, Federation
from ktpfl_pipeline.core.weights import Models, Params, mix

LENGTHS = (0.25, 0.5, 0.75, 1.0)
"""What a client chooses among, beside 0, which keeps its own model; 1 takes all that it was taught."""
TALLY_BYTES = 4 * 2 * len(LENGTHS)
"""What a client uploads for it: wins and losses of each length."""
DOUBT = 1.0
"""How many √(wins + losses) wins must exceed losses by, in the manner of McNemar's test (1947)."""


def none_yet(fed: Federation) -> Tensor:
    """Return the tally before the first round, (N, len(LENGTHS), 2) float64: wins and losses by client and length."""
    return torch.zeros(len(fed.clients), len(LENGTHS), 2, dtype=torch.float64, device=fed.device)


def between(own: Params, taught: Params, length: float) -> Params:
    """Return w + μ (u - w), the model at a share `length`, μ, of the way from `own`, w, to `taught`, u."""
    if length in (0.0, 1.0):
        return taught if length else own
    return mix([own, taught], torch.tensor([[1.0 - length, length]], dtype=torch.float64))[0]


def step(own: Models, taught: Models, tally: Tensor, pooling: float, fed: Federation) -> tuple[Models, Tensor]:
    """Choose a step length for each client of the cohort; return its model there and the tally after this round.

    Args:
        own: the cohort's models at step length 0.
        taught: their models at step length 1.
        tally: of the rounds before; see `none_yet`.
        pooling: weight of all clients' samples relative to a client's own.

    Raises:
        InputError: if no client has a validation sample.
    """
    if not any(len(client.validation) for client in fed.clients):
        raise InputError(
            "Clients choose by validation samples how far they follow their teachers, and none has any: raise "
            "partition.validation_share, or take kt_pfl."
        )
    found = fed.run("choose", weigh, {n: (own[n], taught[n]) for n in own}, WEIGHS)
    rows, tally = fed.positions(list(own)), tally.clone()
    tally[rows] += torch.stack([found[n] for n in own])
    lengths = choose(tally, pooling)
    return {n: between(own[n], taught[n], lengths[row]) for n, row in zip(own, fed.rows(list(own)), strict=True)}, tally


def weigh(space: Workspace, n: int, own: Params, taught: Params) -> Outcome[Tensor]:
    """Return how many of client n's validation samples each length wins and loses against 0, float64.

    Returns:
        (len(LENGTHS), 2): samples that only the longer step's model classifies correctly, and that only `own` does.
    """
    samples = space.split(n, "validation")
    if not len(samples.labels):
        return Outcome(torch.zeros(len(LENGTHS), 2, dtype=torch.float64, device=space.device))
    right = torch.stack(
        [
            predict(space, space.module(n, between(own, taught, length)), samples.inputs).argmax(dim=1)
            == samples.labels
            for length in (0.0, *LENGTHS)
        ]
    )  # (1 + len(LENGTHS), V)
    wins, losses = (right[1:] & ~right[0]).sum(dim=1), (~right[1:] & right[0]).sum(dim=1)
    return Outcome(torch.stack([wins, losses], dim=1).double())


def choose(tally: Tensor, pooling: float) -> list[float]:
    """Return each client's step length, by row of the `tally`, (N, len(LENGTHS), 2).

    It is the length with the most wins minus losses (the shortest for ties) among those ahead of 0 by more than
    `DOUBT`.
    """
    evidence = (tally + pooling * tally.sum(dim=0)).tolist()
    chosen = []
    for lengths in evidence:
        gains = [wins - losses if wins - losses > DOUBT * math.sqrt(wins + losses) else 0.0 for wins, losses in lengths]
        best = max(gains)
        chosen.append(LENGTHS[gains.index(best)] if best > 0 else 0.0)
    return chosen
