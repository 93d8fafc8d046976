"""Properties of a model, found by running it: its head, changes to its input, and tied and frozen tensors.

A module does not tell in which order its layers run, or which layer computes the logits. So an architecture is first
tried (`model_trial`), and then a fresh module is run on a few random inputs, with hooks on its layers.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import kinds, rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import is_path, read_by, watched
from ktpfl_pipeline.core.model_trial import Trial, close
from ktpfl_pipeline.core.weights import frozen_names, is_frozen, tied_names

PARAMETRIZED = ".parametrizations."
"""Part of the names of tensors from which torch computes a weight, as with `weight_norm`."""
LARGE = 30.0
"""The standard deviation of the numbers that replace the output of a head, to see what follows it."""


@dataclass(frozen=True)
class Head:
    """The layer that computes the logits; its input is the feature."""

    name: str  # the layer's name in its model
    width: int  # the number of features per sample in its input
    problem: str = ""  # why no method can use the layer as a head; empty if methods can
    unlike: str = ""  # why the layer is not linear with its own weight; empty if it is
    bias: bool = True  # whether the layer has a bias


@dataclass(frozen=True)
class ModelFacts:
    """Properties of an architecture, found by running it."""

    head: Head | None  # the layer that computes the logits; None if no single layer does
    # names of the layers that own parameters, in the order of their calls; layers that are never called, whose
    # parameters another layer uses, come first
    layers: tuple[str, ...] = ()
    changes_input: bool = False  # whether the model writes to its input tensor
    tied: tuple[str, ...] = ()  # names of parameters or buffers that share the tensor of an earlier name
    frozen: tuple[str, ...] = ()  # names of the parameters and buffers that training does not change
    takes_one: bool = True  # whether the model can be trained on a batch of one sample; with BatchNorm often not
    channels_last: bool = True  # whether the model takes images in channels last; a `view` of a convolution does not
    bounded: bool = False  # whether its outputs are from 0 to 1 with any weights, as after a sigmoid
    built: str = ""  # a hash of what its builder makes, see `model_trial.Tried`; empty before a trial
    warnings: tuple[str, ...] = ()  # what the trial found that may surprise, in one sentence each

    def lacks(self, needed: str) -> str:
        """Return why a method cannot use the model; empty if it can. `needed` is the method's `Method.needs_head`."""
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


Build = Callable[[str], nn.Module]
_KNOWN: WeakKeyDictionary[Callable[..., nn.Module], dict[Any, tuple[dict[str, str], ModelFacts]]] = WeakKeyDictionary()
"""Facts that are known, by builder, architecture and inputs, with what the architecture's package had read by then."""


def facts_of(build: Build, architecture: str, shape: Shape, kind: kinds.Kind, classes: int) -> ModelFacts:
    """Return the properties of an architecture for inputs of a shape. The first call tries it, once per process.

    Builders that are a `partial` of one function, such as `models.build`, share what is known. Raises InputError if the
    architecture does not pass its trial.
    """
    own, given, words = getattr(build, "func", build), getattr(build, "args", ()), getattr(build, "keywords", {})
    shape = words.get("shape", shape)  # a `TokenShape` has the vocabulary, which the samples do not show
    module, _, name = architecture.partition(":")
    plain = {key: value for key, value in words.items() if not isinstance(value, Mapping)}  # without pretrained weights
    maker = getattr(sys.modules.get(module), name, None)  # a notebook may have defined it again
    asked = (architecture, id(maker), shape, getattr(shape, "vocabulary", 0), classes, repr((given, plain)))
    known = _KNOWN.setdefault(own, {})
    if asked not in known or known[asked][0] != read_by(architecture):
        watching = watched(architecture) if is_path(architecture) else nullcontext()
        with watching, torch.device("cpu"), torch.enable_grad():
            tried = Trial(architecture, partial(build, architecture), shape, kind, classes).run()
            with rng.seeded(0):
                facts = look(tried.fresh, shape, kind)
        if facts.bounded:
            raise InputError(
                f"The model {architecture!r} returned numbers from 0 to 1 with any weights, which are not logits, to "
                "which softmax is applied later: leave out the Sigmoid or Softmax at its end."
            )
        known[asked] = read_by(architecture), replace(facts, built=tried.built, warnings=tried.warnings)
    return known[asked][1]


def look(module: nn.Module, shape: Shape, kind: kinds.Kind = kinds.FEATURES) -> ModelFacts:
    """Return the properties of a module. The module is run and changed: do not use it afterwards.

    The module is fresh, on the CPU, and maps (n, *shape) to (n, K). Its inputs here are random.
    """
    tied, frozen = tied_names(module), frozen_names(module)
    inputs = kind.drawn(shape, 2)
    module.float().requires_grad_(True)
    with torch.enable_grad():
        calls, logits, changed = _watched(module.eval(), inputs)
        head = _head(module, inputs, calls, logits.shape[1], tied, frozen)
        last = not kind.pixels or _takes_channels_last(module, inputs, logits.detach())
    with torch.no_grad():
        takes_one = _takes_one(module.train(), inputs[:1].clone())
        _, trained, written = _watched(module, inputs)
        modes = [mode for mode, found in {False: logits, True: trained}.items() if _in_unit(found)]
        bounded = [mode for mode in modes if _is_bounded(module.train(mode), head.name if head else None, inputs)]
    called = dict.fromkeys(name for name, *_ in calls)
    layers = (*(name for name, _ in _layers(module) if name not in called), *called)
    return ModelFacts(head, layers, changed or written, tuple(tied), tuple(frozen), takes_one, last, bool(bounded))


def _in_unit(outputs: Tensor) -> bool:
    return bool(((outputs >= 0) & (outputs <= 1)).all())


def _is_bounded(module: nn.Module, head: str | None, inputs: Tensor) -> bool:
    """Return whether all outputs are from 0 to 1 when large random numbers replace the output of the head.

    Without a head, all parameters are scaled up.
    """
    if head is None:
        for each in module.parameters():
            each.mul_(LARGE**2)
        found: Tensor = module(inputs.clone())
        return _in_unit(found) and bool((found != found[0, 0]).any())

    def large(_: nn.Module, entered: Any, left: Tensor) -> Tensor:
        return LARGE * torch.randn(left.shape, generator=torch.Generator().manual_seed(0))

    hook = module.get_submodule(head).register_forward_hook(large)
    try:
        found = module(inputs.clone())
    finally:
        hook.remove()
    return _in_unit(found)


def layer_of(name: str) -> str:
    return name.partition(PARAMETRIZED)[0] if PARAMETRIZED in f".{name}" else name.rpartition(".")[0]


def prepared(module: nn.Module, facts: ModelFacts) -> nn.Module:
    """Return the module, made safe: it does not change its input, and its frozen layers stay in evaluation mode.

    Images reach a model that does not take channels last in the usual order.
    """
    if facts.changes_input:
        module.register_forward_pre_hook(_copied)
    if not facts.channels_last:
        module.register_forward_pre_hook(_contiguous)
    for part in module.modules():
        if is_frozen(part) and [*part.buffers(recurse=False)]:  # such as BatchNorm in a frozen backbone
            part.eval()
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return module


def _copied(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in inputs)


def _contiguous(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.contiguous() if isinstance(each, Tensor) else each for each in inputs)


Call = tuple[str, nn.Module, tuple[Any, ...], Any]
"""A layer's name, the layer, its inputs, and its output."""


def _watched(module: nn.Module, inputs: Tensor) -> tuple[list[Call], Tensor, bool]:
    """Run a module. Return the calls of its layers in order, its logits, and whether the module wrote to its input."""
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
    """Return the layers of a module that own parameters, including parameters that torch computes from others."""
    for name, part in module.named_modules():
        own = [*part.parameters(recurse=False)] or nn.utils.parametrize.is_parametrized(part)
        if own and PARAMETRIZED not in f".{name}.":
            yield name, part


def _head(
    module: nn.Module, inputs: Tensor, calls: list[Call], classes: int, tied: dict[str, str], frozen: list[str]
) -> Head | None:
    """Return the last layer such that all parameters act on the logits through its output; None if there is none.

    Linear layers are tried first. The operations after such a layer, such as a normalization, then have no parameters.
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
    """Return whether the logits depend on parameters only through the output of `layer`."""
    leaves: list[Tensor] = []

    def cut(_: nn.Module, entered: Any, left: Tensor) -> Tensor:
        leaves.append(left.detach().requires_grad_())
        return leaves[-1].clone()  # the model may write to the clone

    hook = layer.register_forward_hook(cut)
    try:
        value = module(inputs.clone()).sum()
        others = [each for each in module.parameters() if each.is_floating_point()]
        found = torch.autograd.grad(value, [*leaves, *others], allow_unused=True)
    except RuntimeError:  # no tensor requires a gradient
        return False
    finally:
        hook.remove()
    return all(each is not None for each in found[: len(leaves)]) and all(each is None for each in found[len(leaves) :])


def _problem(own: list[str], tied: dict[str, str], frozen: list[str]) -> str:
    """Return why a layer with these parameters cannot be kept, shared or replaced alone, as methods do with a head."""
    for name in own:
        if other := tied.get(name) or next((each for each, first in tied.items() if first == name), ""):
            return f"shares a parameter: {name} is {other} too"
    return "is frozen (requires_grad=False)" if all(name in frozen for name in own) else ""


def _unlike(layer: nn.Module, entered: Tensor, times: int) -> str:
    """Return how a layer differs from a linear layer applied to one vector per sample; empty if it does not."""
    if not isinstance(layer, nn.Linear):
        return f"is a {type(layer).__name__}, not a linear layer"
    if "weight" not in layer._parameters or nn.utils.parametrize.is_parametrized(layer):
        return "computes its weight from other tensors, as weight_norm does"
    if entered.dim() != 2 or times > 1:
        return "is applied to several vectors of a sample"
    return ""


def _takes_channels_last(module: nn.Module, inputs: Tensor, logits: Tensor) -> bool:
    """Return whether a module in evaluation mode has these logits in channels last too, and gradients in training."""
    try:
        module.to(memory_format=torch.channels_last)
        found: Tensor = module(inputs.clone(memory_format=torch.channels_last))  # it may write to its input
        module.train()(inputs.clone(memory_format=torch.channels_last)).sum().backward()
    except Exception:  # any layer may raise any error; `view` raises RuntimeError
        return False
    finally:
        module.zero_grad()
        module.eval().to(memory_format=torch.contiguous_format)
    return close(found.detach(), logits)


def _takes_one(module: nn.Module, inputs: Tensor) -> bool:
    """Return whether a module in training mode accepts a batch of one sample."""
    try:
        module(inputs)
    except Exception:  # any layer may raise any error; BatchNorm raises ValueError
        return False
    return True
