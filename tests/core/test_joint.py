"""Joint models: modules that weights ask for, whatever the architectures are called."""

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import joint


def test_a_plain_model_is_built_as_it_is() -> None:
    assert joint.common_of(toy.build("mlp").state_dict()) == ""
    assert isinstance(joint.built(toy.build, str, "mlp", toy.build("mlp").state_dict()), nn.Sequential)


@pytest.mark.parametrize("common", ["linear", "torchvision:resnet18", "my_package.nets:Wide"])
def test_weights_tell_the_common_architecture(common: str) -> None:
    made = joint.Joint(toy.build("mlp"), toy.build("linear"), common, 5, ("4", "1"))
    assert joint.common_of(made.state_dict()) == common
    asked: list[str] = []

    def build(name: str) -> nn.Module:
        asked.append(name)
        return toy.build("mlp" if name == "mlp" else "linear")

    again = joint.built(build, {"mlp": "4", common: "1"}.__getitem__, "mlp", made.state_dict())
    again.load_state_dict(made.state_dict())
    assert asked == ["mlp", common]
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(again.eval()(images), made.eval()(images))
    assert made(images).shape == (4, toy.CLASSES)
