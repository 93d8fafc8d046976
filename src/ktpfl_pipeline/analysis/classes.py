"""The answers of the clients' final models on their test samples."""

from typing import Any

import torch

from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method


def by_class(method: Method[Any], result: Run, fed: Federation) -> dict[str, list[Any]]:
    """Return ``confusion``, ``predicted``, ``correct`` and ``majority`` of a `FinishedRun`, where labels are known."""
    k, labels = fed.classes, [client.test.labels for client in fed.clients]
    said = fed.classify(method.personal(result.state, fed.by_id, fed), "test")
    places = [int(place) for place in benign(range(len(said)), fed.places(fed.adversary_ids))]
    pairs = torch.cat([labels[place] * k + said[place] for place in places])
    frequent = [client.train.labels.bincount().argmax() for client in fed.clients]
    return {
        "confusion": pairs.bincount(minlength=k * k).view(k, k).tolist(),
        "predicted": [len(each.unique()) for each in said],
        "correct": ["".join(map(str, (a == b).int().tolist())) for a, b in zip(said, labels, strict=True)],
        "majority": [(own == label).double().mean().item() for own, label in zip(labels, frequent, strict=True)],
    }
