"""Every method on a device, by executor and precision: equal to the CPU, and all there."""

import devices
import pytest

from ktpfl_pipeline.methods import METHODS


@pytest.mark.parametrize("precision", devices.PRECISIONS)
@pytest.mark.parametrize("executor", devices.EXECUTORS)
@pytest.mark.parametrize("name", METHODS)
def test_a_run_there_equals_one_on_the_cpu(device: devices.Device, name: str, executor: str, precision: str) -> None:
    """Stacked without dropout, whose masks are drawn for all clients at once in another order there."""
    dropout = executor == "serial" and not device.real
    expected = devices.rounds(name, devices.federation(name, "cpu", executor, precision, dropout=dropout))
    with device.there() as seen:
        found = devices.rounds(name, devices.federation(name, devices.GPU, executor, precision, dropout=dropout))
    device.check_equal(found, expected, precision)
    assert not seen.draws[False]  # nothing was drawn there before it was seeded
