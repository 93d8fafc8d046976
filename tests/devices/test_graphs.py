"""CUDA graphs on a device: a run by graphs equals an eager one on the CPU, and a step of them is a dozen launches."""

from dataclasses import replace

import devices
import pytest
import recorded

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace


def graphed(name: str, patch: pytest.MonkeyPatch, device: devices.Device, precision: str = "float32") -> Workspace:
    """Return the workspace of a federation on the device; its graphs are recorded where it is pretended."""
    if not device.real:
        recorded.stand_in(patch, devices.GPU)
    fed = devices.federation(name, devices.GPU, "serial", precision, dropout=not device.real)
    return fed.executor.workspace(replace(fed, compute=replace(fed.compute, graphs=True)))


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *(("kt_pfl", precision) for precision in devices.PRECISIONS),
        *((name, "float32") for name in ("fedproto", "per_fedavg_hf", "fedgen", "fedrod", "fedala")),
    ],
)
def test_a_run_by_graphs_equals_an_eager_one(
    device: devices.Device, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = devices.rounds(name, devices.federation(name, "cpu", precision=precision, dropout=not device.real))
    with device.there():
        space = graphed(name, monkeypatch, device, precision)
        found = devices.rounds(name, space.setting)
    assert any(how == "replayed" for _, how in space.graphs.taken)
    device.check_equal(found, expected, precision)


@pytest.mark.parametrize("architecture", ["both", "mlp"])
def test_a_step_is_a_dozen_launches(
    pretended: devices.Device, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the depth: read a batch, copy it, replay, step, add up; the first step of a training captures."""
    counts = []
    with pretended.there():
        space = graphed("kt_pfl", monkeypatch, pretended)
        params = space.setting.initial_prototypes()[architecture]
        n = next(client.id for client in space.setting.clients if client.architecture == architecture)
        for epochs in (1, 1, 2):
            with pretended.counted() as found:
                operations.train(space, n, params, 1, epochs)
            counts.append(found.launches)
    steps = len(space.split(n, "train")) // 8
    assert counts[2] - counts[1] <= 12 * steps
