"""The trial of an architecture: what would make results wrong is refused in one sentence; sound models pass."""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline import models
from ktpfl_pipeline.core import kinds, model_trial
from ktpfl_pipeline.core.dataset import TokenShape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.model_facts import ModelFacts, facts_of
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.models import build

SHAPE, CLASSES = (1, 8, 8), 3
Forward = Callable[[Any, Tensor], Any]


class Net(nn.Module):
    """A linear model whose attributes and forward pass are functions of it."""

    total = 0

    def __init__(self, forward: Forward | None = None, **attributes: Any) -> None:
        super().__init__()
        self.net, self.function = linear(), forward or (lambda model, inputs: model.net(inputs))
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, inputs: Tensor) -> Any:
        return self.function(self, inputs)


def linear(classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def after(change: Callable[[Tensor], Any], *, training: bool = True, evaluation: bool = True) -> nn.Module:
    """Return a linear model whose logits are changed in some modes."""

    def forward(model: Any, inputs: Tensor) -> Any:
        logits = model.net(inputs)
        return change(logits) if (training if model.training else evaluation) else logits

    return Net(forward)


def before(change: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a linear model whose inputs, (n, 64), are changed."""
    return Net(lambda model, inputs: model.net(change(inputs.flatten(1))))


def by_hand() -> nn.Module:
    """Return a model whose weight belongs to no layer, and whose outputs are those of a sigmoid."""
    weight = nn.Parameter(0.1 * torch.randn(64, CLASSES))
    return Net(lambda model, inputs: torch.sigmoid(inputs.flatten(1) @ model.weight), net=None, weight=weight)


def overlapping() -> nn.Module:
    model: Any = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES))
    model[2].weight = nn.Parameter(model[1].weight.data)
    return model


def with_buffer(name: str, value: Tensor, **options: Any) -> nn.Module:
    model = linear()
    model.register_buffer(name, value, **options)
    return model


def lazily(model: Any, inputs: Tensor) -> Tensor:
    if not hasattr(model, "late"):
        model.late = nn.Linear(64, 64)
    found: Tensor = model.net(model.late(inputs.flatten(1)))
    return found


LAYER = nn.Linear(8, 8)


def counting(model: Any, inputs: Tensor) -> Tensor:
    """Anneal noise by the number of training steps."""
    if model.training:
        model.steps += 1
        inputs = inputs + torch.randn_like(inputs) * 2.0 / (1 + 0.05 * model.steps)
    found: Tensor = model.net(inputs)
    return found


def warmed_up(model: Any, inputs: Tensor) -> Tensor:
    """Scale the inputs down in the first hundred training steps."""
    model.schedule["steps"] += model.training
    found: Tensor = model.net(inputs if model.schedule["steps"] > 100 else 0.1 * inputs)
    return found


def late(model: Any, inputs: Tensor) -> Tensor:
    """Count training steps in a tensor, and use it after many of them."""
    model.steps += model.training
    found: Tensor = model.net(inputs * (1 + bool(model.steps > 500)))
    return found


class Slots:
    """An object whose attributes are not in a dictionary."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


def late_of(model: Any, inputs: Tensor) -> Tensor:
    """Count training steps in an object of a class with slots, and use their number after many of them."""
    model.kept.steps += model.training
    found: Tensor = model.net(inputs * (1 + (model.kept.steps > 500)))
    return found


STEPS = {"all": [0]}


def late_of_module(model: Any, inputs: Tensor) -> Tensor:
    """Count training steps in a list of the Python module, and use their number after many of them."""
    STEPS["all"][0] += model.training
    found: Tensor = model.net(inputs * (1 + (STEPS["all"][0] > 500)))
    return found


def of_class(model: Any, inputs: Tensor) -> Tensor:
    """Count training steps for all models together."""
    type(model).total += model.training
    found: Tensor = model.net(inputs / (1 + 0.1 * type(model).total))
    return found


def remembering(model: Any, inputs: Tensor) -> Tensor:
    """Add the features of the batch before, as a recurrent layer that keeps its hidden state."""
    old, model.hidden = model.hidden, inputs.mean(dim=0, keepdim=True).detach()
    found: Tensor = model.net(inputs if old is None or not model.training else inputs + old)
    return found


def caching(model: Any, inputs: Tensor) -> Tensor:
    """Normalize by the first batch that it sees."""
    model.cache.setdefault("scale", inputs.abs().mean().item())
    found: Tensor = model.net(inputs / model.cache["scale"])
    return found


def own_draws(model: Any, inputs: Tensor) -> Tensor:
    """Drop out with a generator of its own."""
    if model.training:
        inputs = inputs * (torch.rand(inputs.shape, generator=model.generator) < 0.5)
    found: Tensor = model.net(inputs)
    return found


def with_layers(layers: Any) -> nn.Module:
    """Return a model that applies layers that are in a list, a dictionary or an object."""

    def forward(model: Any, inputs: Tensor) -> Tensor:
        found = vars(model.layers).values() if isinstance(model.layers, SimpleNamespace) else model.layers
        x = inputs.flatten(1)
        for layer in found.values() if isinstance(found, dict) else found:
            x = F.relu(layer(x))
        return model.net(x)  # type: ignore[no-any-return]

    return Net(forward, layers=layers)


def with_tensor(value: Any) -> nn.Module:
    """Return a model that multiplies its inputs, (n, 64), by a tensor that is a plain attribute."""
    return Net(lambda model, inputs: model.net(inputs.flatten(1) * model.scale), scale=value)


def by_numpy() -> nn.Module:
    model: Any = linear()
    model[1].weight.data = torch.tensor(np.random.randn(CLASSES, 64), dtype=torch.float32)
    return model


def with_extra_state() -> nn.Module:
    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"steps": 3}

        def set_extra_state(self, state: Any) -> None:
            pass

    return nn.Sequential(nn.Flatten(), Extra(64, CLASSES))


def attending(batch_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    return nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(64, CLASSES))


class Recurrent(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 6, batch_first=batch_first), nn.Linear(6, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.lstm(inputs[:, 0])[0][:, -1])
        return found


def scripted() -> nn.Module:
    with pytest.warns(FutureWarning):
        return torch.jit.script(linear())  # type: ignore[no-any-return]


def half_scripted() -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.Sequential(torch.jit.script(nn.Flatten()), nn.Linear(64, CLASSES))


STATE = "outside of its state"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # what cannot be trained
    "fewer": (lambda: linear(2), "returned a tensor of (3, 2) for 3 inputs of 1 x 8 x 8; it must return logits, a ten"),
    "more": (lambda: linear(6), "a tensor of (3, 3), one number for each of the 3 classes"),
    "size": (lambda: nn.Linear(99, 3), "does not take 3 inputs of 1 x 8 x 8; it raised RuntimeError: "),
    "lazy": (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "has no shape for 1.weight"),
    "tuple": (lambda: after(lambda logits: (logits, logits)), "returned a tuple for 3 inputs of 1 x 8 x 8;"),
    "training": (lambda: after(lambda logits: {"out": logits}, evaluation=False), "returned a dict for 3 inputs"),
    "labels": (lambda: after(Tensor.long), "returned a tensor of (3, 3) of int64 for 3 inputs"),
    "none": (lambda: after(lambda logits: None), "returned None for 3 inputs of 1 x 8 x 8; it must"),
    "empty": (nn.Flatten, "has no parameters, so that nothing could be trained"),
    "frozen": (lambda: linear().requires_grad_(False), "has requires_grad=False for all of its parameters"),
    "overlapping": (overlapping, "has 2.weight in the memory of 1.weight, and they are two tensors"),
    "complex": (lambda: with_buffer("phase", torch.ones(2, dtype=torch.complex64)), "has phase of complex64 (strided)"),
    "detached": (lambda: after(Tensor.detach), "returned logits that have no gradient"),
    "in place": (lambda: after(lambda logits: logits.exp().mul_(2)), "has no gradient (RuntimeError: one of"),
    "unused": (lambda: Net(spare=nn.Linear(2, 2)), "does not use spare.weight for its logits"),
    "extra state": (with_extra_state, "has 1._extra_state in its state_dict, a dict"),
    # TorchScript
    "scripted": (scripted, "is compiled by torch.jit.script, which hides its layers"),
    "half scripted": (half_scripted, "is compiled by torch.jit.script in 0, which hides its layers"),
    # outputs that are no logits
    "softmax": (lambda: linear().append(nn.Softmax(dim=1)), "returned probabilities in evaluation mode"),  # type: ignore[operator]
    "softmax in evaluation": (
        lambda: after(lambda x: x.softmax(1), training=False),
        "probabilities in evaluation mode",
    ),
    "softmax in training": (lambda: after(lambda x: x.softmax(1), evaluation=False), "probabilities in training mode"),
    "sigmoid": (lambda: after(torch.sigmoid), "returned numbers from 0 to 1 with any weights, which are not logits"),
    "sigmoid without a layer": (by_hand, "returned numbers from 0 to 1 with any weights"),
    "scaled": (lambda: after(lambda x: x.sigmoid() ** 2), "returned numbers from 0 to 1 with any weights"),
    # what the logits depend on and the state does not hold
    "list": (
        lambda: with_layers([nn.Linear(64, 64)]),
        "not among its parameters (layers[0].weight, layers[0].b",
    ),
    "dictionary": (lambda: with_layers({"a": nn.Linear(64, 64)}), "parameters (layers['a'].weight, layers['a'].bias)"),
    "object": (lambda: with_layers(SimpleNamespace(a=nn.Linear(64, 64))), "(layers.a.weight, layers.a.bias)"),
    "frozen list": (
        lambda: with_layers([nn.Linear(64, 64).requires_grad_(False)]),
        "with layers[0].weight, layers[0].bias, which its state_dict does not hold and which differ each time",
    ),
    "tensor": (
        lambda: with_tensor(torch.ones(64, requires_grad=True)),
        "not among its parameters (scale)",
    ),
    "of the module": (lambda: Net(lambda m, x: m.net(LAYER(x))), "not among its parameters (a tensor of (8, 8), a ten"),
    "constant": (lambda: with_tensor(torch.rand(64)), "it computes with scale, which its state_dict does not hold"),
    "not persistent": (
        lambda: Net(lambda m, x: m.net(x * m.mask), mask=nn.Buffer(torch.rand(8, 8), persistent=False)),
        "it computes with mask, which its state_dict does not hold",
    ),
    "by NumPy": (lambda: with_tensor(float(np.random.rand())), "it computes with scale, which its state_dict does no"),
    "lazily made": (lambda: Net(lazily), "does not always have late.weight in its state"),
    # two builds
    "drawn by NumPy": (by_numpy, "has another 1.weight each time it is built with the same seed"),
    "random width": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, n := random.randint(2, 999)), nn.Linear(n, CLASSES)),
        "has another 1.weight each time it is built with the same seed",
    ),
    # state between calls
    "counter": (lambda: Net(counting, steps=0), f"keeps steps from one batch to the next {STATE}"),
    "warm-up": (
        lambda: Net(warmed_up, schedule={"steps": 0}),
        "keeps schedule['steps'] from one batch to the next",
    ),
    "in a tensor": (lambda: Net(late, steps=torch.zeros(())), f"keeps steps from one batch to the next {STATE}"),
    "in an array": (lambda: Net(late, steps=np.zeros(1)), f"keeps steps from one batch to the next {STATE}"),
    "in slots": (lambda: Net(late_of, kept=Slots()), f"keeps kept.steps from one batch to the next {STATE}"),
    "in a list of the module": (lambda: Net(late_of_module), "STEPS['all'][0] from one batch to the next"),
    "of the class": (lambda: Net(of_class), f"keeps Net.total from one batch to the next {STATE}"),
    "hidden state": (lambda: Net(remembering, hidden=None), f"keeps hidden from one batch to the next {STATE}"),
    "cache": (lambda: Net(caching, cache={}), f"keeps cache['scale'] from one batch to the next {STATE}"),
    "own generator": (
        lambda: Net(own_draws, generator=torch.Generator().manual_seed(0)),
        f"keeps generator from one batch to the next {STATE}",
    ),
    "noise": (
        lambda: before(lambda x: F.dropout(x, 0.5)),
        "mode (it draws with torch, or changes a buffer)",
    ),
    "noise by Python": (lambda: before(lambda x: x * random.random()), "evaluation mode (it draws with Python)"),
    "noise by NumPy": (lambda: before(lambda x: x * float(np.random.rand())), "mode (it draws with NumPy)"),
    "counting evaluations": (
        lambda: Net(lambda m, x: m.net(x * _next(m)), n=0),
        "evaluation mode (it changes n)",
    ),
    "training by NumPy": (
        lambda: Net(lambda m, x: m.net(x + float(np.random.rand()) if m.training else x)),
        "draws with NumPy, whose global generator no run seeds",
    ),
    "unseeded draws": (
        lambda: Net(lambda m, x: m.net(x + np.random.default_rng().random((8, 8), "f") if m.training else x)),
        "returned other logits for the same inputs, weights and seed: draw with torch's global generator",
    ),
    # the batch
    "no running statistics": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9, track_running_stats=False), nn.Linear(9, 3)
        ),
        "does not take a single input; it raised ValueError: Expected more than 1 value per channel",
    ),
    "normalized by hand": (lambda: before(lambda x: x - x.mean(dim=0)), "returned other logits for an input alone"),
    "batch size": (lambda: before(lambda x: x / len(x)), "returned other logits for an input alone"),
    "lstm over the batch": (
        lambda: Recurrent(batch_first=False),
        "set batch_first=True in recurrent and att",
    ),
    "attention over the batch": (lambda: attending(batch_first=False), "returned other logits for an input alone"),
}


def _next(model: Any) -> int:
    model.n += 1
    return int(model.n)


def tried(make: Callable[[], Any]) -> ModelFacts:
    return facts_of(lambda name: make(), "net", SHAPE, kinds.FEATURES, CLASSES)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_makes_results_wrong_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, said = REFUSED[kind]
    monkeypatch.setattr(Net, "total", 0)
    random.seed(0)  # two unseeded draws are sometimes nearly equal
    np.random.seed(0)
    with pytest.raises(InputError) as error:
        tried(make)
    assert str(error.value).startswith("The model 'net' ")
    assert said in str(error.value)


def tokens(shape: TokenShape) -> Callable[[], nn.Module]:
    """Return a builder of a model whose embedding takes the ids of a vocabulary, and no others."""
    return lambda: nn.Sequential(nn.Embedding(shape.vocabulary, 4), nn.Flatten(), nn.Linear(4 * shape[0], CLASSES))


SOUND: dict[str, Callable[[], nn.Module]] = {
    "dropout and BatchNorm": lambda: nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), linear()),
    "GroupNorm": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, CLASSES)),
    "InstanceNorm": lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), linear()),
    "LSTM": lambda: Recurrent(batch_first=True),
    "attention": lambda: attending(batch_first=True),
    "log-probabilities": lambda: linear().append(nn.LogSoftmax(dim=1)),  # type: ignore[operator]
    "not negative": lambda: linear().append(nn.ReLU()),  # type: ignore[operator]
    "zero head": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), zero(nn.Linear(64, CLASSES))),
    "spectral_norm": lambda: nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(64, 3))),
    "counted for a log": lambda: Net(lambda m, x: [_next(m), m.net(x)][1], n=0),
    "keeps its features": lambda: Net(lambda m, x: [setattr(m, "last", x), m.net(x)][1], last=None),
    "keeps its own layer": lambda: (model := Net(), setattr(model, "again", [model.net]))[0],
    "one number": lambda: with_tensor(torch.tensor(0.5)),
    "constant buffer": lambda: Net(lambda m, x: m.net(x * m.mask), mask=nn.Buffer(torch.ones(8, 8), persistent=False)),
    "constant array": lambda: Net(lambda m, x: m.net(x * float(m.mean[1])), mean=np.array([np.nan, 2.0])),
    "seeded by NumPy": lambda: with_tensor(float(np.random.default_rng(0).random())),
}


def zero(layer: nn.Linear) -> nn.Linear:
    """Return the layer with zeros as its weights, as some heads start."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def traced() -> nn.Module:
    with pytest.warns(FutureWarning):
        return torch.jit.trace(linear(), torch.zeros(2, *SHAPE))  # type: ignore[no-any-return, no-untyped-call]


SOUND["traced"] = traced


@pytest.mark.parametrize("kind", SOUND)
def test_sound_models_pass_without_a_warning(kind: str) -> None:
    assert tried(SOUND[kind]).warnings == ()


@pytest.mark.parametrize("name", models.MODELS)
def test_registered_models_pass_without_a_warning(name: str) -> None:
    shapes = {"cnn1d": (9, 64), "gru": (9, 64)}
    of_texts = models.module_of(name) == "ktpfl_pipeline.models.text"
    shape = TokenShape((12,), 50, 0) if of_texts else shapes.get(name, (3, 32, 32))
    kind = kinds.TOKENS if of_texts else kinds.IMAGES if len(shape) == 3 else kinds.FEATURES
    assert facts_of(partial(build, shape=shape, classes=CLASSES), name, tuple(shape), kind, CLASSES).warnings == ()


@pytest.mark.parametrize("name", ["squeezenet1_1", "mnasnet0_5", "shufflenet_v2_x0_5", "regnet_y_400mf"])
def test_models_of_torchvision_pass_without_a_warning(name: str) -> None:
    made = partial(build, shape=(3, 33, 33), classes=CLASSES)
    assert facts_of(made, f"torchvision:{name}", (3, 33, 33), kinds.IMAGES, CLASSES).warnings == ()


def test_a_vocabulary_bounds_the_ids() -> None:
    shape = TokenShape((5,), 4)
    build = partial(lambda name, shape: tokens(shape)(), shape=shape)
    assert facts_of(build, "net", (5,), kinds.TOKENS, CLASSES).warnings == ()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: with_tensor(torch.full((64,), 0.5)), "scale"),
        (lambda: with_layers([nn.Linear(64, 64, bias=False).requires_grad_(False).apply(halves)]), "layers[0].weight"),
    ],
    ids=["tensor", "frozen layer"],
)
def test_a_constant_outside_the_state_gives_a_warning(make: Callable[[], nn.Module], name: str) -> None:
    (said,) = tried(make).warnings
    assert said.startswith(
        f"The model 'net' computes its logits with {name}, which is neither a parameter nor a buffer"
    )


def reseeding(when: str) -> nn.Module:
    """Return a model that sets torch's seed while it is built, or in its forward pass."""
    if when == "built":
        torch.manual_seed(3)
    return Net(lambda model, inputs: [torch.manual_seed(3) if when == "run" else None, model.net(inputs)][1])


@pytest.mark.parametrize(("when", "said"), [("built", "while it is built"), ("run", "in its forward pass")])
def test_a_model_that_sets_the_seed_gives_a_warning(when: str, said: str) -> None:
    (found,) = tried(lambda: reseeding(when)).warnings
    assert found.startswith(f"The model 'net' sets torch's seed {said}, so that all seeds of an experiment draw the ")


def halves(layer: nn.Module) -> None:
    for each in layer.parameters():
        nn.init.constant_(each, 0.5)


def test_weights_that_are_not_drawn_belong_to_what_is_built() -> None:
    """As where a builder loads them from a file of safetensors, which Python does not open."""

    def built(change: Callable[[Tensor], Tensor]) -> str:
        def build() -> nn.Module:
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
            loaded = torch.sin(torch.arange(64.0 * 64)).reshape(64, 64)
            net[1].weight = nn.Parameter(change(loaded))
            return net

        return model_trial.Trial("mine", build, SHAPE, kinds.IMAGES, CLASSES).run().built

    usual = built(lambda loaded: loaded)
    assert built(lambda loaded: loaded * (1 + 1.2e-7)) == usual, "as on another processor"
    for change in (lambda loaded: loaded + 0.001, lambda loaded: -loaded, lambda loaded: loaded.flip(0)):
        assert built(change) != usual


def test_a_trial_draws_nothing_and_leaves_no_trace() -> None:
    made, states = [], toy.global_generators()

    def make() -> nn.Module:
        made.append(nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), linear()))
        random.random()
        np.random.rand()
        return made[-1]

    tried(make)
    assert len(made) == 3
    assert toy.same(toy.global_generators(), states)
    assert all(each.grad is None for module in made for each in module.parameters())


def test_an_architecture_is_tried_once_for_all_clients_seeds_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    nets: Any = ModuleType("my_nets")
    monkeypatch.setitem(sys.modules, "my_nets", nets)
    nets.made = []

    def net(shape: Any, classes: int) -> nn.Module:
        nets.made.append(classes)
        return linear(classes)

    nets.net = net
    settings = [
        toy.alike("my_nets:net", build=partial(build, shape=SHAPE, classes=toy.CLASSES, weights={}), seed=seed)
        for seed in (0, 1)
    ]
    assert nets.made == [toy.CLASSES] * 3
    assert replace(settings[1], rounds=3).facts("my_nets:net") is settings[0].facts("my_nets:net")
    assert nets.made == [toy.CLASSES] * 3
    nets.net = partial(net)  # as after a change in a notebook
    toy.alike("my_nets:net", build=partial(build, shape=SHAPE, classes=toy.CLASSES))
    assert len(nets.made) == 6


MIXING: dict[str, Callable[[], nn.Module]] = {
    "mean": lambda: before(lambda x: x - x.mean(dim=0)),
    "detached mean": lambda: before(lambda x: x - x.mean(dim=0).detach()),
    "in training": lambda: Net(lambda m, x: m.net(x.flatten(1) - x.flatten(1).mean(0) if m.training else x)),
    "batch before it": lambda: before(lambda x: x + x.roll(1, dims=0)),
}


@pytest.mark.parametrize("kind", MIXING)
def test_models_that_mix_the_samples_of_a_batch_are_found_in_training(kind: str) -> None:
    assert model_trial.mixes(MIXING[kind], SHAPE, kinds.FEATURES)


@pytest.mark.parametrize("kind", ["GroupNorm", "LSTM", "attention"])
def test_models_that_take_samples_by_themselves_mix_nothing(kind: str) -> None:
    assert not model_trial.mixes(SOUND[kind], SHAPE, kinds.FEATURES)
    assert not model_trial.mixes(lambda: nn.Sequential(nn.Dropout(0.5), linear()), SHAPE, kinds.FEATURES)


def test_private_training_is_refused_where_its_epsilon_would_not_hold() -> None:
    pytest.importorskip("opacus")
    with pytest.raises(InputError, match="depend on the other samples of its batch in training mode, so that no ε"):
        toy.alike("net", build=lambda name: MIXING["in training"](), training=LocalTraining(privacy=Privacy(1.0)))
