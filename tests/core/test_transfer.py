"""Between the host and a device: what comes back, and what is not copied; waits are counted in tests/devices."""

import torch

from ktpfl_pipeline.core.transfer import fetched, on_host, sent

HERE = torch.device("cpu")


def test_what_is_there_is_not_copied() -> None:
    tensor = torch.arange(3)
    assert sent(tensor, HERE) is tensor
    assert on_host({"w": tensor})[0] is tensor


def test_numbers_come_back_in_double_precision() -> None:
    third = torch.tensor(1.0, dtype=torch.float64) / 3
    assert fetched([third, torch.tensor(0.1), torch.tensor(True)]) == [1 / 3, float(torch.tensor(0.1)), 1.0]
    assert fetched([]) == []
