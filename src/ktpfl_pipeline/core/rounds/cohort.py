"""The clients of a round: the sampled cohort, its clients that take part, and its clients that are late."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method


def sample(fed: Federation, participation: float, t: int) -> list[int]:
    """Return the ids of round t's cohort: max(1, round(rN)) clients, drawn uniformly, in client order."""
    ids = sorted(fed.by_id)  # ids are drawn, so the order of the clients does not matter
    size = max(1, round(participation * len(ids)))
    chosen = {ids[position] for position in torch.randperm(len(ids), generator=fed.stream("cohort", t))[:size].tolist()}
    return [client.id for client in fed.clients if client.id in chosen]


def absentees(cohort: Iterable[int], availability: float, t: int, seed: int) -> list[int]:
    """Return the clients of a sampled cohort that drop out of round t, each with probability 1 - `availability`."""
    chance = {n: float(torch.rand((), generator=rng.stream(seed, "availability", t, n))) for n in cohort}
    return [n for n, drawn in chance.items() if drawn >= availability]


def turnout(
    method: Method[Any], sampled: list[int], t: int, fed: Federation, cohorts: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], list[int]]:
    """Return the sampled clients that take part in round t, those that are absent, and those that are late.

    Late predictions are still useful (`exchange`), so stragglers take part if clients upload predictions and no models.
    If clients upload something else, a straggler skips rounds until its last upload has arrived. If they upload
    nothing, no client is late. `cohorts` are the clients that took part in each of the earlier rounds.
    """
    absent = absentees(sampled, fed.reliability.availability, t, fed.seed)
    here = [n for n in sampled if n not in absent]
    late = [n for n in here if n in fed.straggler_ids]
    if not late or takes_late(method):
        return here, absent, late
    if not method.exchanges:
        return here, absent, []
    recent = {n for cohort in cohorts[-fed.reliability.stragglers.delay :] for n in cohort}
    late = [n for n in late if n in recent]  # the others' last uploads have arrived
    return [n for n in here if n not in late], absent, late


def takes_late(method: Method[Any]) -> bool:
    """Return whether late uploads are used: predictions are used, but the server would have to wait for models."""
    return "predictions" in method.exchanges and "parameters" not in method.exchanges
