"""What single operations are on the device: products in the precision that was asked for, draws by name, launches."""

import devices
import pytest
import torch
import toy
from launches import launches

BUDGET = {  # launches a step of local training
    "mlp": 22,
    "cnn": 29,
    "cnn_bn": 35,
    "mcmahan_cnn": 35,
    "lenet": 41,
    "resnet18": 169,
    "shufflenet_v2": 437,
}
SEEN = {  # in products: the dtype of what is multiplied, and whether TF32 may be used
    "float32": (torch.float32, False),
    "tf32": (torch.float32, True),
    "bfloat16": (torch.bfloat16, False),
    "float64": (torch.float64, False),
    "channels last": (torch.float32, False),
}


def test_products_are_in_the_precision_that_was_asked_for(pretended: devices.Device) -> None:
    """Seen at each product of a model, forward and backward; what one run set must not stay for the next."""
    found = {}
    with pretended.there():
        for precision in (*SEEN, "float32"):
            fed = devices.federation("fedavg", devices.GPU, precision, dropout=False)
            fed = toy.again(fed, clients=fed.clients[:2], executor=fed.executor)
            models, batch = fed.initial_models(), fed.public_batch(1)
            with pretended.counted() as seen:
                models = fed.train(models, 1)
                soft = fed.logits(models, batch).softmax(-1).to(torch.float64)
                fed.distill(models, soft, batch, 1)
            names = {name for name, _, _ in seen.products}
            assert {"convolution", "convolution_backward"} < names
            found[precision] = {(types, allowed) for _, types, allowed in seen.products}
    assert found == {precision: {((dtype,), allowed)} for precision, (dtype, allowed) in SEEN.items()}


def test_a_run_begins_in_its_own_precision(pretended: devices.Device) -> None:
    """The server's products before any client's too, whatever the run before it had."""
    with pretended.there():
        for precision in ("tf32", "float32"):
            with pretended.counted() as seen:
                devices.run("pfedhn", devices.federation("pfedhn", devices.GPU, precision=precision, dropout=True))
            assert {allowed for _, _, allowed in seen.products} == {precision == "tf32"}


@pytest.mark.parametrize("architecture", BUDGET)
def test_a_step_launches_no_more_than_its_budget(pretended: devices.Device, architecture: str) -> None:
    """Without a GPU launches are what can be counted of time: a small model's step is nothing else there."""
    with pretended.there():
        assert launches(architecture) <= BUDGET[architecture]
