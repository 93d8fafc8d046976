"""How often the host waits for the device, in both directions, in each phase; of whole rounds see `test_methods`."""

from dataclasses import replace
from typing import Any

import devices
import pretend
import pytest
import torch
import toy

from ktpfl_pipeline.core.rounds.evaluation import accuracies_on
from ktpfl_pipeline.core.settings import Adversaries, Compute, Distillation, Privacy
from ktpfl_pipeline.core.transfer import on_host
from ktpfl_pipeline.core.weights import average, mix

MANY_STEPS = {  # 27 of local training in a round, and 25 of distillation
    "training": replace(devices.TRAINING, batch_size=3),
    "distillation": Distillation(epochs=1, batch_size=3, learning_rate=0.05),
}


def test_a_phase_waits_for_all_clients_at_once(device: devices.Device) -> None:
    """For losses and whether weights are finite together, or until its work is done, so that its seconds are its own.

    The server waits once more: for whether predictions are finite, teachers are distributions, or for evaluations.
    """
    with device.there():
        fed = devices.federation("kt_pfl", devices.GPU, dropout=True, **MANY_STEPS)
        models, batch, found = fed.initial_models(), fed.public_batch(1), []
        teachers = torch.full((5, len(batch), 3), 1 / 3, device=devices.GPU)
        phases: list[Any] = [
            lambda: fed.train(models, 1),
            lambda: fed.logits(models, batch),
            lambda: fed.distill(models, teachers, batch, 1),
            lambda: fed.evaluate(models, "test"),
            lambda: accuracies_on(fed, fed.clients[0].test, models),
        ]
        for phase in phases:
            phase()  # data go there once
            with device.counted() as counts:
                phase()
            found.append(counts.waits)
    assert found == ([1, 2, 2, 2, 2] if not device.real else [1, 1, 2, 1, 1])  # torch does not warn of synchronize()


def test_private_training_waits_once(device: devices.Device) -> None:
    """The indices of all steps of an epoch go there together."""
    with device.there():
        training = replace(devices.TRAINING, batch_size=3, privacy=Privacy(1.0, 1.0, 1e-3))
        fed = toy.alike("mlp", compute=Compute(devices.GPU), training=training)
        fed.train(fed.initial_models(), 1)
        with device.counted() as found:
            fed.train(fed.initial_models(), 2)
    assert found.waits == 1, found.places


@pytest.mark.parametrize("kind", ["random", "reversed", "scaled"])
def test_adversaries_and_divergence_add_no_wait(device: devices.Device, kind: Any) -> None:
    """Client 11's weights break in training; every client but it uploads what is false."""
    with device.there():
        settings = {"adversaries": Adversaries(0.8, kind), "on_divergence": "restore"}
        honest, false = (devices.federation("kt_pfl", devices.GPU, dropout=True, **own) for own in ({}, settings))
        false = toy.again(false, executor=toy.Diverging(11))
        found = []
        for fed in (honest, false):
            models, batch = fed.initial_models(), fed.public_batch(1)
            fed.logits(fed.train(models, 1), batch, 1)
            with device.counted() as counts:
                fed.logits(fed.train(models, 2), batch, 2)
            found.append(counts.waits)
    assert found == [3, 3] if not device.real else found[0] == found[1]
    assert false.current.restored == {11}


def test_what_the_server_does_waits_for_nothing(device: devices.Device) -> None:
    """Mixing by weights of the host, initial models, who is whose row; a model comes to the host in one wait."""
    with device.there():
        fed = devices.federation("fedavg", devices.GPU, dropout=True)
        models = list(fed.train(fed.initial_models(), 1).values())
        with device.counted() as found:
            average(models, fed.data_weights(list(fed.by_id)))
            mixed = mix(models, torch.eye(5, dtype=torch.float64).flip(0))
            fed.common_models(), fed.rows(list(fed.by_id))
        assert found.waits == 0, found.places
        assert all(torch.equal(tensor, models[4][name]) for name, tensor in mixed[0].items())
        with device.counted() as found:
            for tensor, here in zip(models[0].values(), on_host(models[0]), strict=True):
                assert here.device.type == "cpu"
                assert here.dtype == tensor.dtype
        assert found.reads == 1


def test_samples_that_do_not_fit_go_there_client_by_client(
    pretended: devices.Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trained = []
    with pretended.there():
        for free in (2**30, 1000):
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_, free=free: (free, 2**34))
            fed = devices.federation("fedavg", devices.GPU, dropout=True)
            trained.append(fed.train(fed.initial_models(), 1))
            space = fed.executor.workspace(fed)
            assert (space.split(7, "train") is space.split(7, "train")) == (free == 2**30)
        assert toy.same(devices.plain(trained[0]), devices.plain(trained[1]))
    assert caplog.messages == [
        "The clients' samples take 0.0 GB and 0.0 GB are free on cuda: they are copied there client by client."
    ]


def test_waits_are_seen_in_both_directions(pretended: devices.Device) -> None:
    with pretended.there() as found:
        there = torch.arange(3).to(devices.GPU)
        assert (found.copies, found.reads) == (1, 0)
        there[torch.tensor([0])]  # an index goes there
        torch.tensor([1.0], device=devices.GPU)
        assert (found.copies, found.reads) == (3, 0)
        (
            float(there[0]),
            there.tolist(),
            there[there > 1],
            there.cpu(),
            bool((there > 0).all()),
            torch.cuda.synchronize(),
        )
        assert (found.copies, found.reads) == (3, 6)
        torch.arange(3).to(devices.GPU, non_blocking=True)
        there[there] + there.sum()
        assert found.waits == 9


def test_what_a_gpu_refuses_is_refused(pretended: devices.Device) -> None:
    with pretended.there():
        there = torch.ones(3, device=devices.GPU)
        assert isinstance(there, pretend.There)
        assert (2 * there + torch.tensor(1.0)).sum().item() == 9
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="indices should be"):
            torch.ones(3)[there.long()]
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device=devices.GPU, generator=torch.Generator())
