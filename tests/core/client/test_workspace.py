"""Modules of a workspace: one for each architecture, loaded with what is asked for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, MemoryFormat, Privacy
from ktpfl_pipeline.core.weights import load


class TestModules:
    """A workspace keeps one module for each architecture and role."""

    fed = toy.federation(4)  # two of them linear

    def test_one_for_all_clients_of_an_architecture(self) -> None:
        space, models = Workspace(self.fed), self.fed.initial_models()
        linear = space.module(3, models[3])
        assert space.module(12, models[12]) is linear
        assert space.module("linear", models[3]) is linear
        assert space.module(7, models[7]) is not linear

    def test_another_for_another_role(self) -> None:
        space, models = Workspace(self.fed), self.fed.initial_models()
        other = {name: tensor + 1 for name, tensor in models[3].items()}
        own, common = space.module(3, models[3]), space.module("linear", other, "common")
        assert own is not common
        assert space.module(12, models[12], "common") is common
        assert space.module(3, models[3]) is own
        assert toy.same(dict(own.state_dict()), models[3])

    def test_is_loaded_with_what_is_asked_for(self) -> None:
        space, models = Workspace(self.fed), self.fed.train(self.fed.initial_models(), 1)
        for n in (3, 12, 3):
            assert toy.same(dict(space.module(n, models[n]).state_dict()), models[n])

    def test_is_built_once_and_off_the_global_generator(self) -> None:
        built: list[str] = []

        def build(name: str) -> nn.Module:
            built.append(name)
            return toy.build(name)

        models = self.fed.initial_models()
        space, before = Workspace(toy.again(self.fed, build=build)), toy.global_generators()
        for _ in range(2):
            for n, params in models.items():
                space.module(n, params)
                space.module(n, params, "common")
        tried = ["linear"] * 3 + ["conv"] * 3 + ["mlp"] * 3
        assert built == tried + ["linear"] * 2 + ["conv"] * 2 + ["mlp"] * 2  # there are two roles
        assert toy.same(toy.global_generators(), before)


class Convolution(nn.Module):
    """A convolution and a linear layer; ``viewing`` has a `view` between them, which needs a contiguous tensor."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.first, self.last = name, nn.Conv2d(2, 2, 3), nn.Linear(72, toy.CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        convolved = self.first(images)
        flat = convolved.view(len(convolved), -1) if self.name == "viewing" else convolved.flatten(1)
        logits: Tensor = self.last(flat)
        return logits


class TestMemoryFormat:
    """The order of the numbers of an image, and of the weights of a convolution."""

    @pytest.mark.parametrize(
        ("given", "name", "dtype", "last"),
        [
            ("auto", "plain", torch.uint8, True),
            ("channels_last", "plain", torch.uint8, True),
            ("contiguous", "plain", torch.uint8, False),
            ("auto", "plain", torch.float32, False),  # grids of numbers have no channels
            ("channels_last", "plain", torch.float32, False),
            ("auto", "viewing", torch.uint8, False),
            ("channels_last", "viewing", torch.uint8, False),
        ],
    )
    def test_of_a_model(self, given: MemoryFormat, name: str, dtype: torch.dtype, last: bool) -> None:
        public = torch.zeros(13, 2, 8, 8, dtype=dtype)
        fed = toy.federation(build=Convolution, compute=Compute("cpu", memory_format=given), public=public)
        weight = Workspace(fed).module(name, fed.initial_model(name)).get_parameter("first.weight")
        assert weight.is_contiguous(memory_format=torch.channels_last) == last

    def test_auto_on_a_gpu_and_with_private_training(self) -> None:
        public = torch.zeros(13, 2, 8, 8, dtype=torch.uint8)
        fed = toy.federation(build=Convolution, public=public, compute=Compute("cuda"))
        assert fed.memory_format == torch.contiguous_format
        private = replace(fed, compute=Compute("cpu"), training=replace(fed.training, privacy=Privacy(1.0)))
        assert private.memory_format == torch.contiguous_format

    def test_a_model_with_a_view_trains_like_one_without(self) -> None:
        """Next to another client whose model is in channels last, in one process."""
        images = torch.randint(0, 256, (20, 2, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        samples, trained = LabeledDataset(images, torch.arange(20) % 2), []
        for name in ("viewing", "plain"):
            clients = tuple(Client(n, each, *[samples] * 3) for n, each in enumerate((name, "plain")))
            compute = Compute("cpu", dtype="float64")
            fed = Federation(clients, images, 10, toy.CLASSES, Convolution, compute=compute)
            start = fed.initial_model("plain")
            trained.append(fed.train({0: start, 1: start}, 1))
        assert toy.distance(*trained) < 1e-12


class TestTF32:
    """The precision of products on a GPU is one for the process, and each workspace claims its own: no GPU needed."""

    products = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)

    @pytest.fixture(autouse=True)
    def put_back(self) -> Iterator[None]:
        before = [each.fp32_precision for each in self.products]
        yield
        for each, precision in zip(self.products, before, strict=True):
            each.fp32_precision = precision

    @pytest.mark.parametrize(("dtype", "precision"), [("tf32", "tf32"), ("float32", "ieee"), ("bfloat16", "ieee")])
    def test_products_are_in_what_was_asked_for(self, dtype: str, precision: str) -> None:
        space = Workspace(toy.federation(compute=Compute("cuda", dtype=dtype)))
        assert [each.fp32_precision for each in self.products] == [precision] * 3
        assert space.dtype == torch.float32

    def test_two_federations_in_turn_have_each_its_own(self) -> None:
        turns = {dtype: toy.federation(compute=Compute("cuda", dtype=dtype)) for dtype in ("float32", "tf32")}
        executors = {dtype: SerialExecutor() for dtype in turns}
        for _ in range(2):
            for dtype, fed in turns.items():
                executors[dtype].workspace(fed)
                assert [each.fp32_precision for each in self.products] == [{"float32": "ieee"}.get(dtype, dtype)] * 3

    def test_is_refused_on_a_cpu(self) -> None:
        with pytest.raises(InputError, match=r"^compute\.dtype is tf32, which needs a GPU, but the device is a CPU"):
            toy.federation(compute=Compute("cpu", dtype="tf32"))


@pytest.mark.parametrize(("device", "remedied"), [("cpu", True), ("meta", False)])
def test_depthwise_convolutions_train_in_float32_on_a_cpu_alone(device: str, remedied: bool) -> None:
    """A remedy for oneDNN: on a GPU bfloat16 is left as autocast has it."""
    compute = Compute(device, dtype="bfloat16")
    public = torch.zeros(13, 2, 8, 8, dtype=torch.uint8)
    build = lambda name: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(72, toy.CLASSES))  # noqa: E731
    fed = toy.federation(build=build, compute=compute, public=public)
    module: Any = Workspace(fed).module("linear", fed.initial_model("linear"))
    assert ("forward" in vars(module[0])) == remedied


class TestLoad:
    """A module's tensors are written without torch's walk over its parts, and with its messages."""

    def test_takes_every_tensor_in_place(self) -> None:
        module, other = (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)) for _ in range(2))
        other(torch.randn(3, 1, 4, 4))  # its statistics and its counter move
        own = module.state_dict()
        load(module, own, other.state_dict())
        assert toy.same(dict(module.state_dict()), dict(other.state_dict()))
        assert module.state_dict()["0.weight"].data_ptr() == own["0.weight"].data_ptr()

    @pytest.mark.parametrize(
        "params",
        [
            {"weight": torch.ones(1, 2)},
            {"weight": torch.ones(1, 1), "bias": torch.ones(1)},
            {"other": torch.ones(1, 2)},
        ],
        ids=["missing", "broadcast", "name"],
    )
    def test_what_does_not_fit_is_refused(self, params: dict[str, torch.Tensor]) -> None:
        module = nn.Linear(2, 1)
        with pytest.raises(RuntimeError, match="Error"):
            load(module, module.state_dict(), params)
