import importlib.util
import warnings

import pytest
import torch
from torch import nn

from ktpfl_pipeline.core import errors
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import build, find, module_of, shapes, zoo

SMALL = ["squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5", "regnet_y_400mf", "mnasnet0_5"]


@pytest.mark.parametrize("name", SMALL)
def test_a_model_of_torchvision_takes_a_training_step_on_any_images(name):
    shape = (1, 64, 64) if SMALL.index(name) % 2 else (3, 33, 50)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = build(f"torchvision:{name}", shape, 7)
    assert model.training
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 7)
    logits.logsumexp(1).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_global_seed_decides_all_weights_whether_it_was_tried_before_or_not():
    shapes.TRIED.clear()
    first, again = (torch.manual_seed(0) and build("torchvision:resnet18", (4, 32, 32), 3) for _ in range(2))
    assert all(map(torch.equal, first.state_dict().values(), again.state_dict().values()))


def test_the_first_convolution_keeps_its_form():
    stem = build("torchvision:resnet18", (4, 32, 32), 3).conv1
    assert (stem.in_channels, stem.kernel_size, stem.stride, stem.padding, stem.bias) == (
        4,
        (7, 7),
        (2, 2),
        (3, 3),
        None,
    )


def test_three_colors_are_torchvisions_own_model_to_the_bit():
    from torchvision import models

    torch.manual_seed(0)
    theirs = models.resnet18(num_classes=5).state_dict()
    torch.manual_seed(0)
    ours = build("torchvision:resnet18", (3, 64, 64), 5).state_dict()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("vit_b_16", (3, 28, 28), "takes images whose sides are multiples of 16 pixels and as wide as high; these are"),
        ("vit_b_16", (3, 32, 64), "these are 32 x 64: set image.size to 32"),
        ("maxvit_t", (3, 64, 64), "multiples of 224 pixels; these are 64 x 64: set image.size to 224"),
        ("squeezenet1_1", (3, 16, 16), "takes images of at least 17 x 17 pixels; these are 16 x 16: set image.size to"),
        ("resnet18", (9, 128), "torchvision:resnet18 takes images; these are series of 9 x 128: choose cnn1d"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(name, shape, said):
    with pytest.raises(InputError) as caught:
        build(f"torchvision:{name}", shape, 10)
    assert said in str(caught.value)


def test_only_torchvisions_classifiers_are_named():
    for name in ("torchvision:resnet81", "torchvision:fcn_resnet50", "torchvision:models"):
        with pytest.raises(InputError, match=r"torchvision's model '\w+' is unknown"):
            find(name)
    assert module_of("torchvision:resnet18") == "ktpfl_pipeline.models.zoo"
    assert module_of("my.nets:net") == "my.nets"


def test_a_model_that_takes_no_size_is_refused_in_its_own_words():
    class Odd(nn.Module):
        def forward(self, images):
            raise ValueError("never\nat all")

    with pytest.raises(InputError, match=r"^mine cannot be built for images of 3 x 8 x 8 \(never\): choose another"):
        zoo.check("mine", Odd(), (3, 8, 8))


def test_without_timm(monkeypatch):
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"^timm:resnet18 needs timm, not installed: run .* timm, or take another model"
    ):
        find("timm:resnet18")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_a_model_of_timm(name):
    model = build(f"timm:{name}", (1, 64, 64), 7)
    assert model(torch.randn(2, 1, 64, 64)).shape == (2, 7)
