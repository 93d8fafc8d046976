"""The hypernetwork against torch's own layers and gradients."""

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods import pfedhn

START = torch.tensor([1.0, -2.0, 0.5, 4.0, 3.0], dtype=torch.float64)


def drawn(seed: int = 0, layers: int = 2) -> Params:
    """Return weights with a last layer that is not zero, so that gradients reach the others."""
    stream = torch.Generator().manual_seed(seed)
    weights = pfedhn.initial_hypernetwork(START, 3, 7, layers, stream)
    return {**weights, "head.weight": pfedhn.uniform(5, 7, bound=1.0, like=START, stream=stream)}


def as_module(weights: Params) -> nn.Sequential:
    parts: list[nn.Module] = []
    for name in ("0", "1", "2", "head"):
        layer = nn.utils.skip_init(nn.Linear, *weights[f"{name}.weight"].T.shape).double()
        layer.load_state_dict({kind: weights[f"{name}.{kind}"] for kind in ("weight", "bias")})
        parts += [layer, nn.ReLU()] if name in "01" else [layer]
    return nn.Sequential(*parts)


V = torch.tensor([0.3, -1.2, 0.8], dtype=torch.float64)


def norm(gradients: list[Tensor]) -> float:
    return float(torch.cat([gradient.flatten() for gradient in gradients]).norm())


def test_at_first_it_makes_one_model_of_every_embedding() -> None:
    weights = pfedhn.initial_hypernetwork(START, 3, 7, 2, torch.Generator().manual_seed(0))
    assert all(torch.equal(pfedhn.generate(weights, v), START) for v in (V, -V, 0 * V))


def test_drawn_weights_have_the_size_of_torchs_default() -> None:
    weights = pfedhn.initial_hypernetwork(START, 4, 400, 1, torch.Generator().manual_seed(0))
    for name, inputs in (("0.weight", 4), ("0.bias", 4), ("1.weight", 400), ("1.bias", 400)):
        largest = float(weights[name].abs().max())
        assert 0.95 * inputs**-0.5 < largest <= inputs**-0.5


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_every_number_of_layers(layers: int) -> None:
    weights = drawn(layers=layers)
    assert len(weights) == 2 * (layers + 2)
    assert not torch.equal(pfedhn.generate(weights, V), pfedhn.generate(weights, -V))


def test_is_a_multilayer_perceptron() -> None:
    """Two hidden layers with a ReLU behind each but the last, as the authors' code has it."""
    assert torch.allclose(pfedhn.generate(drawn(), V), as_module(drawn())(V), rtol=0, atol=1e-14)


def test_gradients_are_torchs() -> None:
    module, v = as_module(drawn()), V.clone().requires_grad_()
    change = torch.tensor([0.1, 0.2, -0.3, 0.0, 1.0], dtype=torch.float64)
    (module(v) * change).sum().backward()
    slopes, slope = pfedhn.pulled_back(drawn(), V, change, clip=1e6)
    for found, parameter in zip(slopes.values(), module.parameters(), strict=True):
        assert torch.allclose(found, parameter.grad, rtol=0, atol=1e-14)
    assert torch.allclose(slope, v.grad, rtol=0, atol=1e-14)


def test_what_it_is_given_stays_as_it_was() -> None:
    weights, v, change = drawn(), V.clone(), START.clone()
    pfedhn.pulled_back(weights, v, change, clip=0.01)
    assert all(torch.equal(weights[name], tensor) for name, tensor in drawn().items())
    assert torch.equal(v, V)
    assert torch.equal(change, START)


def test_the_common_norm_is_clipped() -> None:
    free, free_v = pfedhn.pulled_back(drawn(), V, START, clip=1e6)
    whole = norm([*free.values(), free_v])
    for clip in (2 * whole, 0.5 * whole, 0.01 * whole):
        found, found_v = pfedhn.pulled_back(drawn(), V, START, clip)
        assert norm([*found.values(), found_v]) == pytest.approx(min(clip, whole), rel=1e-5)
        ratio = min(clip / whole, 1.0)
        assert all(torch.allclose(found[name], ratio * free[name], rtol=1e-5) for name in free)


def test_no_change_no_gradient() -> None:
    found, found_v = pfedhn.pulled_back(drawn(), V, 0.0 * START, clip=50.0)
    assert norm([*found.values(), found_v]) == 0.0


def test_arguments_stay_as_they_were() -> None:
    weights, v = drawn(), V.clone()
    pfedhn.pulled_back(weights, v, START, clip=1.0)
    assert toy.same(weights, drawn())
    assert toy.same(v, V)
    assert not any(tensor.requires_grad for tensor in (*weights.values(), v))
