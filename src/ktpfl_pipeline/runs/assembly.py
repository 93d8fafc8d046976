"""Assembles the federation of one seed from settings and data."""

from dataclasses import replace
from functools import partial
from typing import Any

from ktpfl_pipeline import models
from ktpfl_pipeline.config import schema
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.rounds.newcomers import held_out
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.data.federated import FederatedData


def assemble(experiment: schema.Experiment, data: FederatedData, seed: int) -> Federation:
    """Return the federation of one seed: all clients except newcomers, with their data and architectures."""
    own = data.seeds[seed]
    return Federation(
        clients=clients(experiment, data, seed),
        public=own.standardized(own.public),
        classes=data.private.classes,
        build=partial(models.build, shape=data.private.shape, classes=data.private.classes, weights=data.pretrained),
        seed=seed,
        warnings=data.warnings,
        **settings_of(experiment),
    )


def settings_of(experiment: schema.Experiment) -> dict[str, Any]:
    groups = ("training", "distillation", "compute", "adversaries", "reliability", "knowledge")
    return {
        **{name: getattr(experiment, name) for name in ("rounds", "on_divergence", *groups)},
        "public_batch_size": experiment.public.batch if experiment.has_public() else 0,
        "public_transport": experiment.public.transport,
    }


def clients(experiment: schema.Experiment, data: FederatedData, seed: int, *, held: bool = False) -> tuple[Client, ...]:
    """Return the clients of one seed that are trained, or the clients `held` out of training, in order of their ids."""
    own = data.seeds[seed]
    architectures = dealt(experiment.architectures, list(own.clients))
    newcomers = held_out(own.clients, experiment.newcomers, seed)
    return tuple(
        replace(client, architecture=architectures[n]) for n, client in own.clients.items() if (n in newcomers) == held
    )
