"""What a model is, found by running it: the layer that makes its logits, what it does to its input, what is shared.

A module does not say in which order its layers run, and which of them makes the logits. So a fresh module is run on a
few drawn inputs, with hooks on its layers. The module is not used after that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import kinds, rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.weights import frozen_names, is_frozen, tied_names

PARAMETRIZED = ".parametrizations."
"""In the names of tensors from which torch computes a weight, as with `weight_norm`."""


@dataclass(frozen=True)
class Head:
    """The layer that makes the logits; what enters it is the feature."""

    name: str  # the layer's name in its model
    width: int  # the number of features per sample that enter it
    problem: str = ""  # why no method can treat it as a head; empty if methods can
    unlike: str = ""  # why it is not a linear layer with its own weight; empty if it is one
    bias: bool = True  # whether it has a bias


@dataclass(frozen=True)
class ModelFacts:
    """Properties of an architecture, found by running it."""

    head: Head | None  # the layer that makes the logits; None if no single layer does
    # names of the layers that own parameters, in the order of their calls; layers that are never called, whose
    # parameters another layer uses, come first
    layers: tuple[str, ...] = ()
    changes_input: bool = False  # whether it writes to its input tensor
    tied: tuple[str, ...] = ()  # names of parameters or buffers that are the same tensor as an earlier one
    frozen: tuple[str, ...] = ()  # names of the parameters and buffers that training does not change
    takes_one: bool = True  # whether it can be trained on a batch of one sample; BatchNorm often cannot

    def lacks(self, needed: str) -> str:
        """Return why a method that needs this head, see `Method.needs_head`, cannot use the model; empty if it can."""
        if not needed:
            return ""
        if self.head is None:
            return "none of its layers computes the logits by itself"
        reason = self.head.problem
        if needed != "layer":
            reason = reason or self.head.unlike
        if needed == "biased" and not self.head.bias:
            reason = reason or "has no bias"
        return f"its head {self.head.name} {reason}" if reason else ""


_KNOWN: WeakKeyDictionary[Callable[[str], nn.Module], dict[tuple[str, Shape], ModelFacts]] = WeakKeyDictionary()
"""What was found, by what builds the models, by architecture and shape: each is run once in a process."""


def facts_of(
    build: Callable[[str], nn.Module], architecture: str, shape: Shape, kind: kinds.Kind = kinds.FEATURES
) -> ModelFacts:
    """Return the properties of an architecture; `build` makes a module, which is run, the first time."""
    known = _KNOWN.setdefault(build, {})
    if (architecture, shape) not in known:
        with rng.seeded(0), torch.device("cpu"):
            known[architecture, shape] = look(build(architecture), shape, kind)
    return known[architecture, shape]


def look(module: nn.Module, shape: Shape, kind: kinds.Kind = kinds.FEATURES) -> ModelFacts:
    """Return the properties of a module, which is run and changed: do not use it afterwards.

    It is a fresh one on the CPU, from (n, *shape) to (n, K). Inputs of a kind that are not floats are all zero here.
    """
    tied, frozen = tied_names(module), frozen_names(module)
    inputs = kind.blank(shape, 2)
    if inputs.is_floating_point():
        inputs = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    module.float().requires_grad_(True)
    with torch.enable_grad():
        calls, logits, changed = _watched(module.eval(), inputs)
        head = _head(module, inputs, calls, logits.shape[1], tied, frozen)
    with torch.no_grad():
        takes_one = _takes_one(module.train(), inputs[:1].clone())
        changed = _watched(module, inputs)[2] or changed
    called = dict.fromkeys(name for name, *_ in calls)
    layers = (*(name for name, _ in _layers(module) if name not in called), *called)
    return ModelFacts(head, layers, changed, tuple(tied), tuple(frozen), takes_one)


def layer_of(name: str) -> str:
    """Return the name of the layer to which a parameter belongs."""
    return name.partition(PARAMETRIZED)[0] if PARAMETRIZED in f".{name}" else name.rpartition(".")[0]


def prepared(module: nn.Module, facts: ModelFacts) -> nn.Module:
    """Return a module that is safe to use: its input stays as it was, and frozen layers stay in evaluation mode."""
    if facts.changes_input:
        module.register_forward_pre_hook(_copied)
    for part in module.modules():
        if is_frozen(part) and [*part.buffers(recurse=False)]:  # such as BatchNorm of a frozen backbone
            part.eval()
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return module


def _copied(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in inputs)


Call = tuple[str, nn.Module, tuple[Any, ...], Any]
"""A layer's name, the layer, what entered it, and what it returned."""


def _watched(module: nn.Module, inputs: Tensor) -> tuple[list[Call], Tensor, bool]:
    """Run a module; return the calls of its layers in their order, its logits, and whether it wrote to its input."""
    calls: list[Call] = []
    given = inputs.clone()
    before = given._version

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda layer, entered, left: calls.append((name, layer, entered, left))

    hooks = [layer.register_forward_hook(watch(name)) for name, layer in _layers(module)]
    try:
        logits: Tensor = module(given)
    finally:
        for hook in hooks:
            hook.remove()
    return calls, logits, given._version != before or not torch.equal(given, inputs)


def _layers(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Return the layers of a module that own parameters, which may be computed from others."""
    for name, part in module.named_modules():
        own = [*part.parameters(recurse=False)] or nn.utils.parametrize.is_parametrized(part)
        if own and PARAMETRIZED not in f".{name}.":
            yield name, part


def _head(
    module: nn.Module, inputs: Tensor, calls: list[Call], classes: int, tied: dict[str, str], frozen: list[str]
) -> Head | None:
    """Return the last layer of which the logits are made, with no parameter besides it; None where there is none.

    Layers that are linear come first: what follows them, such as a normalization, has no parameters then.
    """

    def fits(call: Call) -> bool:
        name, layer, entered, left = call
        whole = name and isinstance(left, Tensor) and entered and isinstance(entered[0], Tensor)
        inner = any(True for part in layer.children() for _ in part.parameters())
        inner = inner and not nn.utils.parametrize.is_parametrized(layer)
        return bool(whole) and not inner and left.dim() > 1 and classes in (left.shape[1], left.shape[-1])

    found = [call for call in reversed(calls) if fits(call)]
    for name, layer, entered, _ in sorted(found, key=lambda call: not isinstance(call[1], nn.Linear)):
        if not _makes_logits(module, layer, inputs):
            continue
        own = [f"{name}.{key}" for key, _ in layer.named_parameters(remove_duplicate=False)]
        times = sum(part is layer for _, part, *_ in calls)
        problem, unlike = _problem(own, tied, frozen), _unlike(layer, entered[0], times)
        return Head(name, entered[0][0].numel(), problem, unlike, getattr(layer, "bias", None) is not None)
    return None


def _makes_logits(module: nn.Module, layer: nn.Module, inputs: Tensor) -> bool:
    """Return whether the logits depend on parameters through what a layer returns and in no other way."""
    leaves: list[Tensor] = []

    def cut(_: nn.Module, entered: Any, left: Tensor) -> Tensor:
        leaves.append(left.detach().requires_grad_())
        return leaves[-1].clone()  # which may be written to

    hook = layer.register_forward_hook(cut)
    try:
        value = module(inputs.clone()).sum()
        others = [each for each in module.parameters() if each.is_floating_point()]
        found = torch.autograd.grad(value, [*leaves, *others], allow_unused=True)
    except RuntimeError:  # nothing has a gradient
        return False
    finally:
        hook.remove()
    return all(each is not None for each in found[: len(leaves)]) and all(each is None for each in found[len(leaves) :])


def _problem(own: list[str], tied: dict[str, str], frozen: list[str]) -> str:
    """Return why a layer with these parameters cannot be a head, which methods keep, share or replace by itself."""
    for name in own:
        if other := tied.get(name) or next((each for each, first in tied.items() if first == name), ""):
            return f"shares a parameter: {name} is {other} too"
    return "is frozen (requires_grad=False)" if all(name in frozen for name in own) else ""


def _unlike(layer: nn.Module, entered: Tensor, times: int) -> str:
    """Return in what a layer differs from a linear layer on one vector for each sample; empty where it does not."""
    if not isinstance(layer, nn.Linear):
        return f"is a {type(layer).__name__}, not a linear layer"
    if "weight" not in layer._parameters or nn.utils.parametrize.is_parametrized(layer):
        return "computes its weight from other tensors, as weight_norm does"
    if entered.dim() != 2 or times > 1:
        return "is applied to several vectors of a sample"
    return ""


def _takes_one(module: nn.Module, inputs: Tensor) -> bool:
    """Return whether a module in training mode takes one sample."""
    try:
        module(inputs)
    except Exception:  # of any layer: BatchNorm raises a ValueError
        return False
    return True
