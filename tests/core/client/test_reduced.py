"""Products in bfloat16: close to those in float32, and refused where the processor has no instructions for them."""

import copy

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import settings
from ktpfl_pipeline.core.client import workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Compute

torch.manual_seed(0)
LAYERS = (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten())
MODULES = {
    "images": nn.Sequential(*LAYERS, nn.Linear(64, 3)),
    "series": nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten()),
}
INPUTS = {"images": (5, 2, 8, 8), "series": (5, 2, 8)}
HAS_INSTRUCTIONS = settings.has_bfloat16


def results(kind: str, in_bfloat16: bool) -> list[Tensor]:
    """Return logits and gradients of a module, and logits without a gradient."""
    module = copy.deepcopy(MODULES[kind])
    if in_bfloat16:
        workspace.reduce(module, "cpu")
    inputs = torch.randn(INPUTS[kind], generator=torch.Generator().manual_seed(0))
    logits = module(inputs)
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    with torch.inference_mode():
        return [logits.detach(), *gradients, module.eval()(inputs)]


@pytest.mark.parametrize("kind", MODULES)
def test_is_float32_rounded(kind: str) -> None:
    for exact, rounded in zip(results(kind, False), results(kind, True), strict=True):
        assert exact.dtype == rounded.dtype == torch.float32
        assert 0 < (rounded - exact).norm() < 0.05 * exact.norm() + 0.005


def test_a_processor_without_instructions_is_refused_and_the_message_says_what_to_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "has_bfloat16", lambda device: device != "cpu")
    with pytest.raises(InputError, match=r"^compute\.dtype is bfloat16, .* to float32\."):
        toy.federation(compute=Compute("cpu", dtype="bfloat16"))


def test_a_gpu_has_instructions() -> None:
    assert HAS_INSTRUCTIONS("cuda")
    assert HAS_INSTRUCTIONS("cpu") in (True, False)
