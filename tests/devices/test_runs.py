"""Whole runs on a device: private training, adversaries, divergence, recipes, and checkpoints that change devices."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import devices
import pytest
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.settings import Adversaries, Privacy

SETTINGS: dict[str, dict[str, Any]] = {
    "adversaries": {"adversaries": Adversaries(0.4, "random")},
    "momentum": {"training": replace(devices.TRAINING, optimizer="sgd", momentum=0.9, clip=1.0)},
    "adam": {"training": replace(devices.TRAINING, optimizer="adam", learning_rate=0.01)},
    "label smoothing": {"training": replace(devices.TRAINING, label_smoothing=0.1)},
    "skip": {"on_divergence": "skip"},
    "restore": {"on_divergence": "restore"},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_with_its_evaluation_equals_one_on_the_cpu(device: devices.Device, setting: str) -> None:
    breaks = setting in ("skip", "restore")

    def found(where: str) -> dict[str, Any]:
        fed = devices.federation("kt_pfl", where, dropout=not device.real, **SETTINGS[setting])
        return devices.run("kt_pfl", toy.again(fed, executor=toy.Diverging(11) if breaks else SerialExecutor()))

    expected = found("cpu")
    with device.there():
        ours = found(devices.GPU)
    assert any(record["diverged"] for record in ours["history"]) == breaks
    device.check_equal(ours, expected, setting)


def test_private_training_draws_its_noise_there(device: devices.Device) -> None:
    """By a generator of the device; on a real one other numbers are drawn, and the run alone is tried."""
    training = replace(devices.TRAINING, privacy=Privacy(1.0, 1.0, 1e-3))

    def found(where: str) -> dict[str, Any]:
        fed = toy.again(toy.alike("mlp", build=devices.build), training=training)
        return devices.rounds("local", toy.again(fed, compute=replace(fed.compute, device=where)))

    expected = found("cpu")
    with device.there() as seen:
        ours = found(devices.GPU)
    if not device.real:
        assert seen.draws[True] > 0
        device.check_equal(ours, expected)


@cache
def undisturbed(name: str) -> dict[str, Any]:
    return devices.run(name, devices.federation(name, dropout=False))


@pytest.mark.parametrize("way", [("cpu", devices.GPU), (devices.GPU, "cpu"), (devices.GPU, devices.GPU)])
@pytest.mark.parametrize("name", ["kt_pfl", "fedavg"])
def test_a_checkpoint_goes_from_one_device_to_another(
    device: devices.Device, tmp_path: Path, name: str, way: tuple[str, str]
) -> None:
    """One round there, the other here, and the same result as two at one place."""
    expected = undisturbed(name)
    with device.there():
        for rounds, where in zip((1, 2), way, strict=True):
            fed = devices.federation(name, where, dropout=False)
            schedule = Schedule(rounds, participation=0.6, evaluate_every=2)
            found = engine.run(devices.method_of(name), fed, schedule, checkpoint_file=tmp_path / "checkpoint.pt")
        models = devices.method_of(name).personal(found.state, toy.IDS, fed)
        assert {tensor.device.type for params in models.values() for tensor in params.values()} == {way[1]}
        ours = {"state": found.state, "coefficients": found.coefficients}
    device.check_equal(ours, {key: expected[key] for key in ours})
