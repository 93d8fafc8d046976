"""How often the host waits for the device, in both directions: never for a step, seldom for a client."""

from dataclasses import replace

import devices
import pretend
import pytest
import torch

from ktpfl_pipeline.core.setting import Distillation
from ktpfl_pipeline.methods import METHODS

PER_CLIENT = 5
MORE = (  # wait more often still
    *("kt_pfl", "kt_pfl_likelihood", "kt_pfl_paper_literal", "comet", "fedgen", "fedkd", "scarlet", "selective_fd"),
    *("fedfomo", "pfedhn", "apfl", "pfedgraph"),
)
MANY_STEPS = {  # 27 of local training in a round, and 25 of distillation: a wait in each is more than 25 a round
    "training": replace(devices.TRAINING, batch_size=3),
    "distillation": Distillation(epochs=1, batch_size=3, learning_rate=0.05),
}


@pytest.mark.parametrize(
    ("name", "executor"),
    [
        *(
            pytest.param(name, "serial", marks=pytest.mark.xfail) if name in MORE else (name, "serial")
            for name in METHODS
        ),
        *((name, "stacked") for name in ("kt_pfl", "fedproto", "fml", "per_fedavg_hf", "apple")),
    ],
)
def test_a_round_waits_at_most_five_times_a_client(device: devices.Device, name: str, executor: str) -> None:
    """Of five clients, in the second round, when their data are there; a wait in each step would be more."""
    with device.there():
        fed = devices.federation(name, devices.GPU, executor, dropout=True, **MANY_STEPS)
        method, cohort = devices.method_of(name), [client.id for client in fed.clients]
        state, _ = method.round(method.init(fed), cohort, 1, fed)
        with device.counted() as found:
            method.round(state, cohort, 2, fed)
    assert found.waits <= PER_CLIENT * len(cohort), found.places


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
