"""Accuracy per class of the clients' final models."""

from typing import Any

import torch

from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method


def by_class(method: Method[Any], result: Run, fed: Federation) -> dict[str, list[Any]]:
    """Return ``confusion``, ``predicted`` and ``majority`` of a `FinishedRun`, where labels are accessible."""
    each = fed.confusion(method.personal(result.state, fed.by_id, fed), "test")  # (N, K, K)
    places = [int(place) for place in benign(range(len(each)), fed.places(fed.adversary_ids))]
    frequent = [client.train.labels.bincount().argmax() for client in fed.clients]
    shares = [(own.test.labels == label).double().mean() for own, label in zip(fed.clients, frequent, strict=True)]
    predicted = (each.sum(dim=1) > 0).sum(dim=1).tolist()
    confusion = each[places].sum(dim=0).tolist()
    return {"confusion": confusion, "predicted": predicted, "majority": torch.stack(shares).tolist()}
