"""A method on federations that exist already, as objects in memory, instead of federations made from settings."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from ktpfl_pipeline.config.schema import NO_PUBLIC, Experiment, Private, Public
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client, Split
from ktpfl_pipeline.data.federated import Facts, FederatedData
from ktpfl_pipeline.data.partition import NATURAL
from ktpfl_pipeline.data.settings import Partition
from ktpfl_pipeline.data.sources.parts import check_finite
from ktpfl_pipeline.runs.identity import Job

PYTHON = "python"
"""The source of samples that were given in Python."""


@dataclass(frozen=True, eq=False)
class Origin:
    """What `federation` made a federation from."""

    experiment: Experiment
    data: FederatedData


@dataclass(frozen=True, eq=False)
class GivenJob(Job):
    """A method on federations that exist already, by seed."""

    federations: dict[int, Federation] = field(default_factory=dict)
    made: Any = None  #: the method with its hyperparameters
    keeps_models: ClassVar[bool] = False
    pretrained: ClassVar[dict[str, Any]] = {}  # the fingerprint covers initial models

    def federation(self, seed: int, checkpoints: Path | None) -> tuple[Federation, Facts]:
        fed = self.federations[seed]
        _check_samples(fed)
        first, known = fed.clients[0].train, fed.origin and fed.origin.data.private
        counts = label_counts(fed)
        return replace(fed, rounds=self.experiment.rounds), Facts(
            label_counts=counts,
            fingerprint=_fingerprint(fed),
            shape=list(first.inputs.shape[1:]),
            native=list(known.native or ()) if known else [],
            kind=first.kind.name,
            profile={"samples": int(counts.sum()), "public samples": len(fed.public), "clients": len(fed.clients)},
            class_names=known.class_names if known else None,
        )

    def newcomers(self, seed: int) -> tuple[Client, ...]:
        return ()

    def built(self) -> dict[str, Any]:
        """Return no hashes: the fingerprint covers the initial models."""
        return {}

    def create(self) -> Any:
        return self.made


def _check_samples(fed: Federation) -> None:
    """Raise InputError if the samples of a federation made by hand have several forms, or a label is wrong."""
    form = kinds.described(fed.clients[0].train.inputs) if fed.clients else ""
    parts = [(f"Client {own.id}", name, getattr(own, name)) for own in fed.clients for name in get_args(Split)]
    for who, name, part in parts:
        known = part.labels.dtype == torch.int64 and part.labels.shape == part.inputs.shape[:1]
        if not known or ((part.labels < 0) | (part.labels >= fed.classes)).any():
            raise InputError(
                f"{who} has {name} labels that are wrong: give {plural(len(part), 'class number')} in int64, 0 to "
                f"{fed.classes - 1}, one per sample."
            )
    inputs = [(who, f"{name} samples", part.inputs) for who, name, part in parts]
    for who, what, each in (*inputs, *([("The federation", "public samples", fed.public)] * fed.has_public())):
        if (other := kinds.described(each)) != form:
            raise InputError(f"{who} has {what} that are {other}, and the first client {form}: give all one form.")
        if each.is_floating_point():
            check_finite(each, f"{who}, {what},")


def _fingerprint(fed: Federation) -> str:
    """Return a hash of the clients' samples, the public samples and the initial models."""
    digest = hashlib.sha256()
    splits = [each for client in fed.clients for each in (client.train, client.validation, client.test)]
    models = [tensor for model in fed.initial_prototypes().values() for tensor in model.values()]
    for tensor in (fed.public, *(part for own in splits for part in (own.inputs, own.labels)), *models):
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()[:32]


def experiment_of(fed: Federation, **changes: Any) -> Experiment:
    """Return the settings of a federation, also if some of its fields were replaced, with further `changes`."""
    own = {n: client.architecture for n, client in fed.by_id.items()}
    by_hand = Experiment(
        Private(PYTHON),
        public=Public(source=PYTHON if fed.has_public() else NO_PUBLIC),
        partition=Partition(scheme=NATURAL),
        architectures={str(n): name for n, name in own.items()},
    )
    made: Experiment = fed.origin.experiment if fed.origin else by_hand
    groups = ("training", "distillation", "compute", "adversaries", "knowledge", "on_divergence")
    unreliable = {name: getattr(fed.reliability, name) for name in ("availability", "stragglers", "budgets")}
    batch = fed.public_batch_size or made.public.batch
    return replace(
        made,
        clients=len(fed.clients),
        public=replace(made.public, batch=batch, transport=fed.public_transport),
        **{name: getattr(fed, name) for name in groups},
        **unreliable,
        **changes,
    )


def label_counts(fed: Federation) -> Tensor:
    """Return the number of private samples per client and class, over all splits: (N, K) int64, one row per client."""
    owned = [torch.cat([own.train.labels, own.validation.labels, own.test.labels]) for own in fed.clients]
    return torch.stack([labels.bincount(minlength=fed.classes) for labels in owned])
