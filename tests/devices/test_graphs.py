"""CUDA graphs on a device: a run by graphs equals an eager one on the CPU, and a step of them is ten launches."""

from dataclasses import replace

import devices
import pytest
import recorded
import toy

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
        *(("kt_pfl", precision) for precision in ("float32", "bfloat16")),
        *((name, "float32") for name in ("fedproto", "per_fedavg_hf", "fedgen", "fedala")),
        ("fedrod", "channels last"),
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


def test_a_step_is_ten_launches(pretended: devices.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the depth: read a batch, copy it, replay, add up, step; the first step of a training captures."""
    found, n = [], toy.IDS[0]  # with two batches that are full
    with pretended.there():
        space = graphed("kt_pfl", monkeypatch, pretended)
        params = space.setting.initial_models()[n]
        for epochs in (1, 1, 2):
            with pretended.counted() as counts:
                operations.train(space, n, params, 1, epochs)
            found.append(counts.launches)
    assert found[2] - found[1] <= 2 * 10
