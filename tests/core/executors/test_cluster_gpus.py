"""Ray workers that have GPUs, on a cluster that declares some: Ray assigns a device to each worker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from typing import Any

import forked
import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors import ray_session
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor
from ktpfl_pipeline.methods import create

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'")


def assigned(space: Any, n: int) -> Outcome[str]:
    return Outcome(os.environ["CUDA_VISIBLE_DEVICES"])


def clusters() -> Iterator[Any]:
    """Yield what is found on a cluster of this machine that declares two GPUs, in a process of its own."""
    import ray
    from ray import cloudpickle

    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    for module in (toy, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    settings = toy.federation(architectures=("linear", "mlp"))
    for gpus in (1.0, 0.5):
        with closing(ClusterExecutor(ray_session.LOCAL, "auto", gpus)) as executor:
            fed = toy.again(settings, executor=executor)
            found = fed.run("phase", assigned, dict.fromkeys(toy.IDS, ()))
            yield len(executor._pool), sorted(set(found.values()))
            if gpus == 1.0:
                there = engine.run(create("kt_pfl"), fed, Schedule(rounds=2))
                yield [record.accuracy for record in there.history]
                yield there.state.models
    with pytest.raises(InputError, match=r"has Ray workers with 3 GPUs each, and the cluster has 2 GPUs"):
        ray_session.Session(ray_session.LOCAL, "auto", 3)
    ray.shutdown()


def test_ray_assigns_gpus_to_workers() -> None:
    """A GPU each, or half a GPU each; what they compute, here on the CPU, is what the serial executor computes."""
    if "ray" in sys.modules:  # a fork of a process that has used Ray would wait for Ray forever
        test = [sys.executable, "-m", "pytest", "-q", f"{__file__}::{test_ray_assigns_gpus_to_workers.__name__}"]
        done = subprocess.run(test, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout
        return
    whole, accuracy, models, halves = forked.result(lambda: list(clusters()))
    assert whole == (2, ["0", "1"])
    assert halves == (4, ["0", "1"])
    serial = engine.run(create("kt_pfl"), toy.federation(architectures=("linear", "mlp")), Schedule(rounds=2))
    assert accuracy == [record.accuracy for record in serial.history]
    assert toy.same(models, serial.state.models)
    assert torch.get_default_dtype() == torch.float32
