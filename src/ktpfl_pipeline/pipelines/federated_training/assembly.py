"""From settings and data to the federation of one seed."""

from functools import partial

from ktpfl_pipeline import models
from ktpfl_pipeline.config import schema
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.rounds.newcomers import held_out
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.data.federated import FederatedData


def assemble(experiment: schema.Experiment, data: FederatedData, seed: int) -> Federation:
    """Return the federation of one seed: the data of each client that is not a newcomer, with its architecture."""
    own = data.seeds[seed]
    return Federation(
        clients=clients(experiment, data, seed),
        public=own.standardized(own.public),
        public_batch_size=0 if experiment.public.source == schema.NO_PUBLIC else experiment.public.batch,
        classes=data.private.classes,
        build=partial(models.build, shape=data.private.shape, classes=data.private.classes, weights=data.pretrained),
        seed=seed,
        rounds=experiment.rounds,
        training=experiment.training,
        distillation=experiment.distillation,
        compute=experiment.compute,
        public_transport=experiment.public.transport,
        on_divergence=experiment.on_divergence,
        adversaries=experiment.adversaries,
        reliability=experiment.reliability,
        knowledge=experiment.knowledge,
    )


def clients(experiment: schema.Experiment, data: FederatedData, seed: int, *, held: bool = False) -> tuple[Client, ...]:
    """Return the clients of one seed that take part in training, or the clients `held` out of it, ids ascending."""
    own = data.seeds[seed]
    architectures = dealt(experiment.architectures, list(own.clients))
    names = own.names or [""] * len(own.clients)
    newcomers = held_out(own.clients, experiment.newcomers, seed)
    return tuple(
        Client(n, architectures[n], *parts, name=name)
        for (n, parts), name in zip(own.clients.items(), names, strict=True)
        if (n in newcomers) == held
    )
