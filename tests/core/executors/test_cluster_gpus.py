"""Ray workers that have GPUs, on a cluster that declares some: Ray assigns a device to each worker."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import forked
import pretend
import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors import cluster, ray_session
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.methods import create

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'")


class Pretended(cluster._Worker):
    """A worker on a machine whose torch takes the CPU for a GPU."""

    def __init__(self) -> None:
        self._there = ExitStack()
        self._there.enter_context(pretend.gpu())
        super().__init__()


def assigned(space: Any, n: int) -> Outcome[tuple[str, str]]:
    return Outcome((os.environ["CUDA_VISIBLE_DEVICES"], str(space.device)))


def clusters() -> Iterator[Any]:
    """Yield what is found on a cluster of this machine that declares two GPUs, in a process of its own."""
    import ray
    from ray import cloudpickle

    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    for module in (toy, pretend, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    cluster._Worker = Pretended  # type: ignore[misc]
    with pretend.gpu():
        settings = replace(toy.federation(architectures=("linear", "mlp")), compute=Compute("cuda"))
        for gpus in (1.0, 0.5):
            with closing(ClusterExecutor(ray_session.LOCAL, "auto", gpus)) as executor:
                fed = toy.again(settings, executor=executor)
                found = fed.run("phase", assigned, dict.fromkeys(toy.IDS, ()))
                yield len(executor._pool), sorted(set(found.values()))
                if gpus == 1.0:
                    there = engine.run(create("kt_pfl"), fed, Schedule(rounds=2))
                    yield [record.accuracy for record in there.history]
                    yield {n: {k: v.cpu() for k, v in p.items()} for n, p in there.state.models.items()}
        with pytest.raises(InputError, match=r"has Ray workers with 3 GPUs each, and the cluster has 2 GPUs"):
            ray_session.Session(ray_session.LOCAL, "auto", 3)
    ray.shutdown()


def test_ray_assigns_gpus_to_workers() -> None:
    """A GPU each, or half a GPU each; the results are those of the serial executor on a CPU."""
    whole, accuracy, models, halves = forked.result(lambda: list(clusters()))
    assert whole == (2, [("0", "cuda"), ("1", "cuda")])
    assert halves == (4, [("0", "cuda"), ("1", "cuda")])
    serial = engine.run(create("kt_pfl"), toy.federation(architectures=("linear", "mlp")), Schedule(rounds=2))
    assert accuracy == [record.accuracy for record in serial.history]
    assert toy.same(models, serial.state.models)
    assert torch.get_default_dtype() == torch.float32
