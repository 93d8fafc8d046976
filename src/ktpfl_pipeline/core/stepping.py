"""How far a client goes from its own model toward what it was taught: as far as validation samples agree.

Twenty clients with a dozen validation samples each know little alone and much together. So what counts is how many
samples a step classifies correctly, a client's own and a part of everybody's, over all rounds so far. Not the loss: a
teacher's soft predictions raise it where they raise the accuracy too (docs/LOG.md).
"""

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import WEIGHS, Federation
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, mix, select

POINTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The lengths s among which a client chooses: 0 keeps its own model, 1 takes all that it was taught."""
ROUNDING = 1e-9
"""Of sums of whole numbers times `pooling`."""
HITS_BYTES = 4 * len(POINTS)
"""What a client uploads for it: so many numbers."""


def none_yet(fed: Federation) -> Tensor:
    """Return the hits before the first round, (N, len(POINTS)) float64, row = client."""
    return torch.zeros(len(fed.clients), len(POINTS), dtype=torch.float64, device=fed.device)


def between(own: Params, taught: Params, length: float) -> Params:
    """Return w + s (u - w), the model at a share `length`, s, of the way from `own`, w, to `taught`, u."""
    if length in (0.0, 1.0):
        return taught if length else own
    return mix([own, taught], torch.tensor([[1.0 - length, length]], dtype=torch.float64))[0]


def step(own: Models, taught: Models, hits: Tensor, pooling: float, fed: Federation) -> tuple[Models, Tensor]:
    """Let each client of the cohort choose its s, and return its model there and the hits after this round.

    Client n takes the s with the most ``hits[n] + pooling * Σ_m hits[m]``, the least of equal ones.

    Args:
        own: w_n, the cohort's models after local training.
        taught: u_n, after all that they learned from others.
        hits: (N, len(POINTS)), validation samples that models at these lengths classified correctly so far.
        pooling: the weight of everybody's hits.
        fed: the federation.

    Raises:
        InputError: if nobody has a validation sample.
    """
    sizes = {n: len(fed.by_id[n].validation) for n in own}
    judges = [n for n, size in sizes.items() if size]
    if not any(len(client.validation) for client in fed.clients):
        raise InputError(
            "Clients choose by validation samples how far they follow their teachers, and none has any: raise "
            "partition.validation_share, or take kt_pfl."
        )
    ways = [{n: between(own[n], taught[n], length) for n in own} for length in POINTS]
    found = [fed.evaluate(select(way, judges), "validation", WEIGHS) for way in ways] if judges else []
    hits, rows = hits.cpu().clone(), dict(zip(own, fed.rows(list(own)), strict=True))
    for n in judges:
        hits[rows[n]] += torch.tensor([round(sizes[n] * each[n].accuracy) for each in found], dtype=torch.float64)
    chosen = choose(hits, pooling)
    return {n: ways[chosen[rows[n]]][n] for n in own}, sent(hits, fed.device)


def choose(hits: Tensor, pooling: float) -> list[int]:
    """Return which of POINTS each client takes, by row of `hits`, (N, len(POINTS)); see `step`."""
    evidence = hits + pooling * hits.sum(dim=0)
    best = evidence >= evidence.amax(dim=1, keepdim=True) - ROUNDING
    return [row.index(True) for row in best.tolist()]
