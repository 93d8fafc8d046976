"""What single operations are on the device: products in the precision that was asked for, draws by name, launches."""

import devices
import pytest
import torch
import toy
from launches import launches

BUDGET: dict[str, tuple[float, ...]] = {  # launches a step of local training; and for each client in a stack of five
    "mlp": (22, 9.6),
    "cnn": (29, 12.4),
    "cnn_bn": (35, 17.2),
    "mcmahan_cnn": (35, 14.2),
    "lenet": (41, 16.0),
    "alexnet": (59,),
    "resnet18": (169,),
    "shufflenet_v2": (437,),
}
SEEN = {  # in products: the dtype of what is multiplied, and whether TF32 may be used
    "float32": (torch.float32, False),
    "tf32": (torch.float32, True),
    "bfloat16": (torch.bfloat16, False),
    "float64": (torch.float64, False),
    "channels last": (torch.float32, False),
}


@pytest.mark.parametrize("executor", devices.EXECUTORS)
def test_products_are_in_the_precision_that_was_asked_for(pretended: devices.Device, executor: str) -> None:
    """Seen at each product of a model, forward and backward; what one run set must not stay for the next."""
    found = {}
    with pretended.there():
        for precision in (*SEEN, "float32"):
            fed = devices.federation("fedavg", devices.GPU, executor, precision, dropout=False)
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


def test_stacked_draws_there_are_named(device: devices.Device) -> None:
    """What others have drawn on the device changes nothing, and nothing is taken from them."""
    found = []
    with device.there():
        for seed in (1, 2):
            torch.cuda.manual_seed(seed)
            before = torch.cuda.get_rng_state().clone()
            found.append(devices.rounds("kt_pfl", devices.federation("kt_pfl", devices.GPU, "stacked", dropout=True)))
            assert torch.equal(torch.cuda.get_rng_state(), before)
    device.check_equal(*found)


@pytest.mark.parametrize("architecture", BUDGET)
def test_a_step_launches_no_more_than_its_budget(pretended: devices.Device, architecture: str) -> None:
    """Without a GPU launches are what can be counted of time: a small model's step is nothing else there."""
    with pretended.there():
        for stack, most in zip((1, 5), BUDGET[architecture], strict=False):
            assert launches(architecture, stack) <= most * stack
