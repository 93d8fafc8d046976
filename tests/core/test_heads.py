"""Heads of more than one layer: their numbers by hand, and weights that tell their kind."""

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import joint


def layer(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    made = nn.Linear(len(weight[0]), len(weight)).double()
    made.load_state_dict({"weight": torch.tensor(weight).double(), "bias": torch.tensor(bias).double()})
    return made


def test_a_gate_splits_features() -> None:
    """Scores of ln 3 and 0 give 3/4 and 1/4 of the first feature; equal scores half of the second.

    The personal head reads (3, 2) of the features (4, 4), the common one (1, 2): 1·3 + 10·2 + 100 and 2·1 + 0·2 + 0.
    """
    head = joint.Gated(layer([[1.0, 10.0]], [100.0]))
    head.common = layer([[2.0, 0.0]], [0.0])
    scores = torch.tensor([3.0]).double().log().item()
    setattr(head, joint.Gated.PART, layer([[0.0, 0.0]] * 4, [scores, 0.0, 0.0, 0.0]))
    x = torch.tensor([[4.0, 4.0]]).double()
    assert head.double()(x).tolist() == [[pytest.approx(125.0)]]
    head.noisy = True
    assert head.eval()(x).tolist() == [[pytest.approx(125.0)]]
    assert head.train()(x).tolist() != [[pytest.approx(125.0)]]


def test_a_gate_sees_the_client() -> None:
    """The context scales what the policy reads: with zeros all samples are split alike."""
    torch.manual_seed(0)
    head, x = joint.Gated(nn.Linear(3, 2)), torch.randn(2, 3)
    policy = getattr(head, joint.Gated.PART)
    assert torch.equal(head(x)[:1], head(torch.stack([x[0], x[0]]))[:1])
    blind = policy(x * head.context)
    head.context.fill_(1.0)
    assert torch.equal(blind[0], blind[1])
    assert not torch.allclose(policy(x * head.context)[0], policy(x * head.context)[1])


def test_a_valve_scales_and_shifts_features() -> None:
    """gamma = (1, 2) and beta = (0, -20) turn (3, 5) into relu(3·2 + 0, 5·3 - 20) = (6, 0)."""
    head = joint.Valved(layer([[1.0, 1.0]], [0.5]))
    for branch, constant in zip(head.branches, ([1.0, 2.0], [0.0, -20.0]), strict=True):
        branch[0], branch[1], branch[2] = layer([[0.0, 0.0]] * 2, constant), nn.Identity(), nn.Identity()
    x, anything = torch.tensor([[3.0, 5.0]]).double(), torch.ones(2).double()
    assert head.valve(x, anything).tolist() == [[6.0, 0.0]]
    assert head.double()(x).tolist() == [[6.5]]


def test_the_head_reads_personalized_features() -> None:
    """With the second input of the valve, not with the first."""
    torch.manual_seed(0)
    head, x = joint.Valved(nn.Linear(3, 2)), torch.randn(2, 3)
    before = head(x)
    head.contexts[0] = 5.0
    assert torch.equal(head(x), before)
    head.contexts[1] = 5.0
    assert torch.equal(head(x), head.linear(head.valve(x, torch.full((3,), 5.0))))
    assert not torch.equal(head(x), before)


@pytest.mark.parametrize("kind", joint.KINDS)
@pytest.mark.parametrize("architecture", ["mlp", "conv"])
def test_weights_tell_the_kind_of_the_head(kind: type[joint.Gated], architecture: str) -> None:
    made = joint.replaced(toy.build(architecture), "4", kind)
    assert joint.kind_of(made.state_dict()) is kind
    assert joint.kind_of(toy.build(architecture).state_dict()) is None
    again = joint.built(toy.build, {architecture: "4"}.__getitem__, architecture, made.state_dict())
    again.load_state_dict(made.state_dict())
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(again.eval()(images), made.eval()(images))
