"""Products in bfloat16 where the processor has no instructions for them: as torch's own, and where it has."""

import copy

import pytest
import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client import reduced

torch.manual_seed(0)
LAYERS = (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten())
MODULES = {
    "images": nn.Sequential(*LAYERS, nn.Linear(64, 3)),
    "series": nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten()),
}
INPUTS = {"images": (5, 2, 8, 8), "series": (5, 2, 8)}


def results(kind: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return logits and gradients of a module, and logits without a gradient."""
    monkeypatch.setattr(reduced, "has_instructions", lambda device: precision == "autocast")
    module = copy.deepcopy(MODULES[kind])
    if precision != "float32":
        reduced.reduce(module, "cpu")
    inputs = torch.randn(INPUTS[kind], generator=torch.Generator().manual_seed(0))
    logits = module(inputs)
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    with torch.inference_mode():
        return [logits.detach(), *gradients, module.eval()(inputs)]


@pytest.mark.parametrize("kind", MODULES)
def test_is_as_far_from_float32_as_autocast_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("float32", "autocast", "by float32")
    for exact, torchs, own in zip(*(results(kind, way, monkeypatch) for way in ways), strict=True):
        assert exact.dtype == torchs.dtype == own.dtype == torch.float32
        assert 0.3 < (own - exact).norm() / (torchs - exact).norm() < 1.3
        assert (own - torchs).norm() < (torchs - exact).norm()


def test_factors_and_sums_are_rounded_to_8_bits() -> None:
    """1 + 2⁻⁹ is 1 there, and 256 + 1 is 256; what is summed up before is not rounded."""
    factors, ones = torch.tensor([[1 + 2**-9, 256.0, 1.0, 1.0]]), torch.ones(1, 4)
    with torch.autocast("cpu", torch.bfloat16), reduced.ByFloat32():
        assert torch.nn.functional.linear(factors, torch.tensor([[1.0, 0, 0, 0]])).tolist() == [[1.0]]
        assert torch.nn.functional.linear(factors, torch.tensor([[0, 1.0, 1, 0]])).tolist() == [[256.0]]
        assert (factors @ ones.T).tolist() == [[260.0]]
    with reduced.ByFloat32():
        assert (factors @ ones.T).dtype == torch.float32


def test_a_gpu_has_instructions() -> None:
    assert reduced.has_instructions("cuda")
