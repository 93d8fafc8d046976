import copy
import pickle

import pytest
import torch
from torch import nn
from torchvision.models.shufflenetv2 import InvertedResidual

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import MODELS, build

# Written by hand, apart from the registry: a model that is dropped or renamed must show here.
NAMES = ["lenet", "alexnet", "resnet18", "shufflenet_v2", "mcmahan_cnn", "logistic", "mlp", "cnn", "cnn_bn"]
NAMES[5:5] = ["mcmahan_unpadded", "mcmahan_2nn"]
NAMES += ["cnn1d", "gru"]
OF_TEXTS = ["fasttext", "text_cnn", "text_gru", "text_lstm", "text_transformer"]  # see test_text
SERIES = [(9, 128), (2, 33)]
FLAT = ("mlp", "logistic", "mcmahan_2nn")
SHAPES = [(1, 28, 28), (3, 32, 32)]
LEAST = {"lenet": 16, "alexnet": 15, "resnet18": 9, "shufflenet_v2": 9, "mcmahan_cnn": 4}
LEAST |= {"mcmahan_unpadded": 16, "cnn": 4, "cnn_bn": 4}

# (name, shape) -> parameters with 10 classes; see the docstrings and the cited papers.
PARAMETERS = {
    ("lenet", (1, 28, 28)): 44_426,
    ("lenet", (3, 28, 28)): 44_726,
    ("lenet", (3, 32, 32)): 62_006,
    ("alexnet", (1, 28, 28)): 20_125_386,
    ("alexnet", (3, 28, 28)): 20_126_538,
    ("alexnet", (3, 32, 32)): 23_272_266,
    ("resnet18", (1, 28, 28)): 11_172_810,
    ("resnet18", (3, 32, 32)): 11_173_962,
    ("shufflenet_v2", (1, 28, 28)): 1_263_422,
    ("shufflenet_v2", (3, 32, 32)): 1_263_854,
    ("mcmahan_cnn", (1, 28, 28)): 1_663_370,
    ("mcmahan_cnn", (3, 32, 32)): 2_156_490,
    ("mcmahan_unpadded", (1, 28, 28)): 582_026,
    ("mcmahan_unpadded", (3, 32, 32)): 878_538,
    ("mcmahan_2nn", (1, 28, 28)): 199_210,
    ("mcmahan_2nn", (3, 32, 32)): 656_810,
    ("mlp", (1, 28, 28)): 50_890,
    ("mlp", (3, 32, 32)): 197_322,
    ("cnn", (1, 28, 28)): 9_098,
    ("cnn", (3, 32, 32)): 11_642,
    ("cnn_bn", (1, 28, 28)): 9_122,
    ("cnn_bn", (3, 32, 32)): 11_666,
    ("cnn1d", (9, 128)): 21_770,
    ("gru", (9, 128)): 15_050,
    ("mlp", (30,)): 2_634,
    ("logistic", (1, 28, 28)): 7_850,
    ("logistic", (3, 32, 32)): 30_730,
}
# Values in the running means and variances of BatchNorm.
FLOAT_BUFFERS = {"resnet18": 9_600, "shufflenet_v2": 16_180, "cnn_bn": 48}


def shapes(name: str) -> list[tuple[int, ...]]:
    return SERIES if name in ("cnn1d", "gru") else [*SHAPES, *SERIES, (30,)] if name in FLAT else SHAPES


# Each model on one shape, and on the others where they are of another kind or go another way; sizes and colors have a
# test of their own.
EVERY = [
    *(("lenet", (1, 28, 28)), ("lenet", (3, 32, 32)), ("alexnet", (3, 32, 32)), ("resnet18", (1, 28, 28))),
    *(("shufflenet_v2", (3, 32, 32)), ("mcmahan_cnn", (1, 28, 28)), ("cnn", (3, 32, 32)), ("cnn_bn", (1, 28, 28))),
    ("mcmahan_unpadded", (1, 28, 28)),
    *((name, shape) for name in (*FLAT, "cnn1d", "gru") for shape in shapes(name)[-3:]),
]


def seeded(name: str, shape: tuple[int, ...] = (), classes: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, shape or shapes(name)[0], classes)


def inputs(n: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))


def test_registry_holds_the_documented_names():
    assert list(MODELS) == [*NAMES, *OF_TEXTS]


@pytest.mark.parametrize(("name", "shape"), EVERY)
def test_logits_have_one_column_per_class_and_every_parameter_a_finite_gradient(name, shape):
    model = seeded(name, shape, classes=7)
    logits = model(inputs(3, shape))
    assert logits.shape == (3, 7)
    nn.functional.cross_entropy(logits, torch.tensor([0, 3, 6])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name  # nothing is out of the graph's reach


def test_parameter_counts():
    with torch.device("meta"):  # counts need no weights
        models = {key: build(*key, 10) for key in PARAMETERS}
    assert {key: sum(p.numel() for p in model.parameters()) for key, model in models.items()} == PARAMETERS


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_images_of_any_size_and_colors(name, least):
    """One image trains even where it is as small as may be; a pixel less is refused."""
    for shape in [(4, least, least), (2, least + 1, least + 17)]:
        assert seeded(name, shape)(inputs(1, shape)).isfinite().all()
    with pytest.raises(InputError, match=f"^{name} takes images of at least {least} x {least} pixels; these are "):
        build(name, (1, least + 5, least - 1), 10)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("lenet", (9, 128), "lenet takes images; these are series of 9 x 128: choose cnn1d, gru or mlp."),
        ("resnet18", (30,), "resnet18 takes images; these are vectors of 30: choose mlp."),
        (
            "gru",
            (3, 32, 32),
            "gru takes series; these are images of 3 x 32 x 32: choose lenet, cnn, mlp or torchvision:resnet18.",
        ),
        ("cnn1d", (9, 3), "cnn1d takes series of at least 4 values; these have 3: choose mlp."),
        ("cnn", (2, 3, 4, 5), "cnn takes images; these are inputs of 4 dimensions of 2 x 3 x 4 x 5: choose mlp."),
    ],
)
def test_inputs_of_another_kind(name, shape, said):
    with pytest.raises(InputError) as caught:
        build(name, shape, 10)
    assert str(caught.value) == said


def test_float_buffers_belong_to_batch_norm():
    with torch.device("meta"):
        models = {name: build(name, shapes(name)[-1], 10) for name in NAMES}
    found = {name: sum(b.numel() for b in model.buffers() if b.is_floating_point()) for name, model in models.items()}
    assert found == {name: FLOAT_BUFFERS.get(name, 0) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_global_seed_decides_the_weights(name):
    first, again, other = (seeded(name, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    convolutions_and_layers = [key for key in first if key.endswith("weight") and first[key].ndim > 1]
    assert convolutions_and_layers
    assert not any(torch.equal(first[key], other[key]) for key in convolutions_and_layers)


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2"])
def test_stem_keeps_the_resolution(name):
    model = build(name, (1, 28, 28), 10)
    assert not any(isinstance(module, nn.MaxPool2d) for module in model.modules())
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    assert (stem.in_channels, stem.kernel_size, stem.stride, stem.padding) == (1, (3, 3), (1, 1), (1, 1))
    assert stem.bias is None
    assert model.maxpool(model.conv1(inputs(1, (1, 28, 28)))).shape[-2:] == (28, 28)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_shufflenet_shuffles_as_torchvision_does(order):
    """To the bit, forward and backward; and the images' order of memory stays."""
    model, batch = seeded("shufflenet_v2").to(memory_format=order), inputs(3, (1, 28, 28)).to(memory_format=order)
    theirs = copy.deepcopy(model)
    for block in theirs.modules():
        if isinstance(block, InvertedResidual):
            del block.forward
    seen = []
    model.stage3.register_forward_hook(lambda stage, given, found: seen.append(found))
    for each in (model, theirs):
        each(batch).square().sum().backward()
    grads = zip(model.parameters(), theirs.parameters(), strict=True)
    assert all(torch.equal(ours.grad, other.grad) for ours, other in grads)
    assert seen[0].is_contiguous(memory_format=order)


def test_resnet_stem_starts_like_the_other_convolutions():
    # He's normal initialization over the outputs: variance 2 / (64 channels x 3 x 3).
    stem = seeded("resnet18", (3, 28, 28)).conv1
    assert stem.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_depends_neither_on_the_rest_of_the_batch_nor_on_a_pickle_in_between(name):
    """After a last training batch of one image."""
    model = seeded(name)
    batch = inputs(4, shapes(name)[0])
    with torch.no_grad():
        assert model(batch[:1]).isfinite().all()
        model(batch)  # moves the running statistics of BatchNorm off their start
        model.eval()
        logits = model(batch)
        torch.testing.assert_close(logits[:1], model(batch[:1]), rtol=1e-4, atol=1e-5)
        assert torch.equal(pickle.loads(pickle.dumps(model))(batch), logits)


def test_alexnet_uses_dropout_only_in_training():
    model = seeded("alexnet")
    batch = inputs(2, (1, 28, 28))
    with torch.no_grad():
        assert not torch.equal(model(batch), model(batch))
        model.eval()
        assert torch.equal(model(batch), model(batch))


@pytest.mark.parametrize(
    ("arguments", "value", "allowed"),
    [
        (("resnet81", (1, 28, 28), 10), "'resnet81'", "did you mean 'resnet18'?"),
        (("shufflenetv2", (1, 28, 28), 10), "'shufflenetv2'", "did you mean 'shufflenet_v2'?"),
        (("transformer9", (1, 28, 28), 10), "'transformer9'", "lenet, alexnet"),
        (("lenet", (1, 28, 28), 1), "classes=1", "at least 2"),
    ],
)
def test_refused_input_names_the_value_and_what_is_allowed(arguments, value, allowed):
    with pytest.raises(InputError) as caught:
        build(*arguments)
    assert value in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("name", ["cnn1d", "gru", "lenet", "cnn"])
def test_series_with_one_axis_too_many_are_told_their_shape(name: str) -> None:
    with pytest.raises(InputError, match=r"9 x 1 x 128, series .* set private.shape to \[9, 128\], and choose cnn1d"):
        build(name, (9, 1, 128), 6)


def test_logistic_regression_of_two_classes_is_that_of_the_binary_cross_entropy() -> None:
    model, x = seeded("logistic", (3,), classes=2), inputs(5, (3,))
    labels = torch.tensor([0, 1, 1, 0, 1])
    weight, bias = model.parameters()
    score = x @ weight.detach()[0] + bias.detach()
    loss = nn.functional.cross_entropy(model(x), labels)
    expected = nn.functional.binary_cross_entropy_with_logits(score, labels.float())
    assert torch.allclose(loss, expected)
    (found,) = torch.autograd.grad(loss, [weight])
    assert torch.allclose(found[0], ((score.sigmoid() - labels) @ x) / 5, atol=1e-6)
