"""Newcomers: clients that are held out of training, join after the last round, and are evaluated with the others."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.federation import ClientStates, Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import LEDGERS, Newcomers
from ktpfl_pipeline.core.rounds.evaluation import adapted
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.shares import rounded
from ktpfl_pipeline.core.weights import opened


def held_out(clients: Iterable[int], share: float, seed: int) -> list[int]:
    """Return the ids of round(share · N) newcomers, ascending. A smaller share gives a subset of those of a larger one.

    Raises InputError if a positive share holds out no client, or leaves none.
    """
    ids = sorted(clients)
    size = rounded(share, len(ids))
    if share and not 0 < size < len(ids):
        raise InputError(
            f"newcomers is {share:g}, which is {size} of {plural(len(ids), 'client')}; take a share that holds at "
            "least one client out and leaves at least one, or 0."
        )
    return rng.drawn("newcomers", share, ids, seed)


def judge(method: Method[Any], state: Any, fed: Federation, held: Sequence[Client], epochs: Sequence[int]) -> Newcomers:
    """Let newcomers join, and return their accuracies after each number of epochs of local training.

    The trained clients are evaluated too, after as many extra epochs (`Method.adapt`). Adapted models are discarded.

    Args:
        method: the method of the run.
        state: the state after the last round of `fed`.
        fed: the federation of the trained clients.
        held: the newcomers, at least one.
        epochs: numbers of epochs, above 0 and ascending; models are always evaluated after 0 epochs too.
    """
    there = opened(method.personal(state, fed.by_id, fed))
    passes = fed.distillation.passes(fed.public_batch_size)
    everyone = replace(
        fed,
        clients=(*fed.clients, *held),
        distillation=replace(fed.distillation, epochs=fed.rounds * passes, steps=None),
        on_divergence="stop" if fed.on_divergence == "stop" else "restore",  # there is no round to skip
        client_states=ClientStates(),
    )
    start = opened(method.untuned(state, there, fed))
    joined = method.join(state, there, [client.id for client in held], everyone)
    settled = {e: method.settle(state, joined.models, e, everyone) for e in (0, *epochs)}
    return Newcomers(
        clients=[client.id for client in held],
        architectures=[client.architecture for client in held],
        accuracy={e: [x.accuracy for x in everyone.evaluate(models, "test").values()] for e, models in settled.items()},
        there={e: adapted(method, state, start if e else there, e, everyone) for e in (0, *epochs)},
        traffic={ledger: sum(getattr(sent, ledger) for sent in joined.traffic.values()) for ledger in LEDGERS},
    )
