"""The answers of the clients' final models on their test samples."""

from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.core.client.measures import measures
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import LEADING

GROUPS = 10
"""The groups of test samples that `_jackknife` leaves out in turn."""


def by_class(method: Method[Any], result: Run, fed: Federation) -> dict[str, Any]:
    """Return the fields of a `FinishedRun` about test samples, from ``confusion`` to ``majority``; labels are known."""
    k, labels = fed.classes, [client.test.labels for client in fed.clients]
    logits = fed.own_logits(method.personal(result.state, fed.by_id, fed), "test")
    said = [each.argmax(dim=1) for each in logits]
    parts = [_jackknife(*each) for each in zip(logits, labels, strict=True)]
    places = [int(place) for place in benign(range(len(said)), fed.places(fed.adversary_ids))]
    pairs = torch.cat([labels[place] * k + said[place] for place in places])
    frequent = [client.train.labels.bincount().argmax() for client in fed.clients]
    return {
        "confusion": pairs.bincount(minlength=k * k).view(k, k).tolist(),
        "predicted": [len(set(each.tolist())) for each in said],
        "correct": ["".join(map(str, (a == b).int().tolist())) for a, b in zip(said, labels, strict=True)],
        "jackknife": {name: [each[name] for each in parts] for name in LEADING},
        "majority": [(own == label).double().mean().item() for own, label in zip(labels, frequent, strict=True)],
    }


def _jackknife(logits: Tensor, labels: Tensor) -> dict[str, list[float]]:
    """Return the measures in `LEADING`, each without one of `GROUPS` groups of the samples, (V, K) and (V,)."""
    groups = min(GROUPS, len(labels))
    stays = torch.arange(len(labels)) % groups != torch.arange(groups)[:, None]  # (groups, V)
    found = measures(logits.expand(groups, -1, -1), labels.expand(groups, -1), stays)
    return {name: found[name].tolist() for name in LEADING}
