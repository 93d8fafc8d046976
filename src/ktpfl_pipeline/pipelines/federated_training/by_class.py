"""What is known of a finished run class by class, of a federation whose labels are in this process."""

from typing import Any

import torch

from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method


def by_class(method: Method[Any], result: Run, fed: Federation) -> dict[str, list[Any]]:
    """Return the fields ``confusion`` and ``majority`` of a `FinishedRun`.

    Args:
        method: as it was run.
        result: the run.
        fed: its federation.
    """
    each = fed.confusion(method.personal(result.state, fed.by_id, fed), "test")  # (N, K, K)
    places = [int(place) for place in benign(range(len(each)), fed.positions(fed.adversary_ids).tolist())]
    frequent = [client.train.labels.bincount().argmax() for client in fed.clients]
    shares = [(own.test.labels == label).double().mean() for own, label in zip(fed.clients, frequent, strict=True)]
    return {"confusion": each[places].sum(dim=0).tolist(), "majority": torch.stack(shares).tolist()}
