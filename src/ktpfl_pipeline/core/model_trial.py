"""The trial of an architecture before it is trained: it finds what would make results wrong without an error.

The architecture is built three times and run on six random inputs, in about ten forward passes. Its logits must depend
on the input, on `state_dict` and on torch's seeded generators alone. Then equal weights give equal logits in every
process, after a run is resumed, and in an exported model.
"""

import random
import re
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import called, raised
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.kept_values import marks_of, numbers_of, values_of
from ktpfl_pipeline.core.kinds import Kind
from ktpfl_pipeline.core.weights import gist

SAMPLES = 3
"""The number of inputs of a pass. There are two different sets of them."""
FAR = 10_000
"""A number that a pass changes is moved on by this many such changes, to see whether the logits depend on it."""
TOLERANCE = 2e-4
"""The largest difference of equal logits, in units of the largest logit: kernels round differently by batch size."""


class Tried(NamedTuple):
    """What a trial shows of an architecture that passes it."""

    fresh: nn.Module  # a new module
    built: str  # a hash of the layers, the shapes of all tensors, and the values that no seed changes
    warnings: tuple[str, ...]  # what may surprise, in one sentence each


class Trial:
    """The trial of the architecture `name`, of which `build` returns a new module; see `run`."""

    def __init__(self, name: str, build: Callable[[], nn.Module], shape: Shape, kind: Kind, classes: int) -> None:
        self.name, self.build, self.shape, self.classes = name, build, shape, classes
        #: the states of torch's generator after building and after forward passes, by what was done and the seed
        self.ended: dict[tuple[str, int], Tensor] = {}
        self.x, self.y = torch.split(kind.drawn(shape, 2 * SAMPLES), SAMPLES)  # (n, *shape) each

    def run(self) -> Tried:
        """Return what is found. Python's, NumPy's and torch's global generators are left as they were.

        Raises InputError if the model cannot be trained, or if its outputs are not logits. Logits must not depend on
        other inputs of the batch in evaluation mode, on values outside of the state, or on draws that no seed repeats.
        """
        generators = _generators()
        try:
            module, again, other = self.made(0), self.made(0), self.made(1)
            self.check_tensors(module)
            self.check_same_seed(module, again)
            built = _built(module, other)
            self.state = _without_zeros(module.float())
            self.load(module)
            self.evaluated = self.logits(module, False)
            self.check_repeats(module)
            self.check_batch(module)
            self.check_training(module)
            self.check_state(other.float())
            return Tried(again, built, (*self.reseeds(), *self.constants(module)))
        finally:
            random.setstate(generators["Python"])
            np.random.set_state(generators["NumPy"])

    def refuse(self, found: str) -> NoReturn:
        """Raise the InputError that says what was found in the model, and what to do."""
        raise InputError(f"The model {self.name!r} {found}.")

    def made(self, seed: int) -> nn.Module:
        with rng.seeded(seed):
            made = self.build()
            self.ended["while it is built", seed] = torch.get_rng_state()
        return made

    def logits(self, module: nn.Module, training: bool, inputs: Tensor | None = None, seed: int = 2) -> Tensor:
        """Return a module's logits of `inputs`, by default of `x`, (n, K). Raises InputError if they are none.

        torch's draws depend on the seed.
        """
        x = self.x if inputs is None else inputs
        sides, expected = " x ".join(map(str, self.shape)), (len(x), self.classes)
        try:
            with rng.seeded(seed):
                found: Any = module.train(training)(x.clone())
                self.ended["in its forward pass", seed] = torch.get_rng_state()
        except Exception as error:  # whatever the user's own code raises
            raise InputError(
                f"The model {self.name!r} does not take {len(x)} inputs of {sides}; it raised "
                f"{raised(error, self.name)}: correct it, or choose another model or size of the inputs."
            ) from error
        if not isinstance(found, Tensor) or found.shape != expected or not found.is_floating_point():
            self.refuse(
                f"returned {called(found)} for {len(x)} inputs of {sides}; it must return logits, a tensor of "
                f"{expected}, one number for each of the {self.classes} classes"
            )
        sums = found.sum(dim=1)
        if len(x) == SAMPLES and bool((found >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            self.refuse(
                f"returned probabilities in {'training' if training else 'evaluation'} mode (rows of at least 0 that "
                "sum to 1), and not logits, to which softmax is applied later: leave out the Softmax at its end"
            )
        return found if training else found.detach()

    def load(self, module: nn.Module) -> None:
        """Load the state of the trial into a module. Raises InputError if the module does not have the same tensors."""
        own = module.state_dict()
        if odd := [key for key in (*self.state, *own) if key not in self.state or key not in own]:
            self.refuse(
                f"does not always have {odd[0]} in its state: make the same layers in __init__ each time, and none in "
                "a forward pass"
            )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(self.state[name])

    def check_tensors(self, module: nn.Module) -> None:
        """Check that layers can be watched, and that tensors can be trained, averaged, sent and loaded."""
        for name, part in module.named_modules():
            if isinstance(part, torch.jit.RecursiveScriptModule):  # type: ignore[attr-defined]
                self.refuse(
                    f"is compiled by torch.jit.script{name and f' in {name}'}, which hides its layers: return the "
                    "module itself, and compile it after the run"
                )
        tensors = dict(chain(module.named_parameters(), module.named_buffers()))
        if lazy := [key for key, each in tensors.items() if nn.parameter.is_lazy(each)]:
            self.refuse(
                f"has no shape for {lazy[0]} before its first input: use layers with given sizes, such as nn.Linear, "
                "instead of lazy ones"
            )
        if not [*module.parameters()]:
            self.refuse("has no parameters, so that nothing could be trained: give it layers")
        if not any(each.requires_grad for each in module.parameters()):
            self.refuse(
                "has requires_grad=False for all of its parameters, so that nothing could be trained: leave some of "
                "them trainable"
            )
        for key, each in tensors.items():
            if each.is_complex() or each.layout is not torch.strided:
                dtype, layout = (str(of).removeprefix("torch.") for of in (each.dtype, each.layout))
                self.refuse(
                    f"has {key} of {dtype} ({layout}); a model's tensors are dense and real: store real and imaginary "
                    "parts as two tensors, or a dense one"
                )
        places: dict[int, str] = {}
        for key, each in module.named_parameters():
            other = places.setdefault(each.untyped_storage().data_ptr() if each.numel() else id(each), key)
            if other != key:
                self.refuse(
                    f"has {key} in the memory of {other}, and they are two tensors: assign the parameter itself to "
                    "share it (b.weight = a.weight), or clone it"
                )
        for key, value in module.state_dict().items():
            if not isinstance(value, Tensor):
                self.refuse(
                    f"has {key} in its state_dict, {called(value)}; only tensors are averaged, sent and saved: keep it "
                    "in a buffer (register_buffer)"
                )

    def check_same_seed(self, module: nn.Module, again: nn.Module) -> None:
        """Check that two modules that are built with the same seed start with the same state."""
        one, two = module.state_dict(), again.state_dict()
        for key in (*one, *two):
            if key not in one or key not in two or not _equal(one[key], two[key]):
                self.refuse(
                    f"has another {key} each time it is built with the same seed: draw sizes and initial values with "
                    "torch's functions, which are seeded, and not with those of NumPy or Python"
                )

    def check_repeats(self, module: nn.Module) -> None:
        """Check that the same inputs have the same logits in evaluation mode."""
        generators, marks = _generators(), marks_of(module)
        if close(self.logits(module, False, seed=3), self.evaluated):
            return
        changed = [key for key, value in marks_of(module).items() if marks.get(key) != value]
        drawn = [f"draws with {name}" for name, state in _generators().items() if state != generators[name]]
        why = drawn or [f"changes {_some(changed)}"] * bool(changed) or ["draws with torch, or changes a buffer"]
        self.refuse(
            f"returned other logits for the same inputs in evaluation mode (it {why[0]}), so that no evaluation could "
            "be repeated: draw only while self.training, as in F.dropout(x, p, self.training), and change nothing "
            "otherwise"
        )

    def check_training(self, module: nn.Module) -> None:
        """Check a pass in training mode: its draws are repeated by a seed; all trained parameters have gradients."""
        generators = _generators()
        logits = self.logits(module, True)
        if drawn := [name for name, state in _generators().items() if state != generators[name]]:
            self.refuse(
                f"draws with {drawn[0]}, whose global generator no run seeds, so that no training could be repeated: "
                "draw with torch's functions"
            )
        if not logits.requires_grad:
            self.refuse("returned logits that have no gradient: compute them without detaching")
        own = {id(each) for each in module.parameters()}
        if hidden := [each for each in _leaves(logits) if id(each) not in own]:
            known = {id(value): key for key, (value, _) in values_of(module).items()}
            names = [key for place, key in known.items() if place in {id(each) for each in hidden}]
            forms = [f"a tensor of {tuple(each.shape)}" for each in hidden if id(each) not in known]
            self.refuse(
                f"computes its logits with tensors that are not among its parameters ({_some(names + forms)}), so that "
                "they are not trained, sent or saved: put layers into nn.ModuleList or nn.ModuleDict, and tensors into "
                "nn.Parameter"
            )
        parameters = {key: each for key, each in module.named_parameters() if each.requires_grad}
        try:
            found = torch.autograd.grad(logits.sum(), [*parameters.values()], allow_unused=True)
        except RuntimeError as error:
            self.refuse(f"has no gradient ({raised(error, self.name)}): correct it")
        if unused := [key for key, gradient in zip(parameters, found, strict=True) if gradient is None]:
            self.refuse(
                f"does not use {unused[0]} for its logits, so that it has no gradient: leave it out, set its "
                "requires_grad to False, or, if some batches use it, multiply its output by 0 for the others"
            )
        self.trained = logits.detach()

    def check_batch(self, module: nn.Module) -> None:
        """Check that an input has the same logits alone and in a batch, in evaluation mode."""
        for place in (0, SAMPLES - 1):
            found = "returned other logits for an input alone than for the same input in a batch"
            try:
                if close(self.logits(module, False, self.x[place : place + 1]), self.evaluated[place : place + 1]):
                    continue
            except InputError as error:
                if error.__cause__ is None:  # not the model's own error
                    raise
                found = f"does not take a single input; it raised {raised(error.__cause__, self.name)}"
            self.refuse(
                f"{found}, in evaluation mode, so that accuracy would depend on compute.prediction_batch: let "
                "BatchNorm keep running statistics, normalize each input by itself (GroupNorm, LayerNorm), and set "
                "batch_first=True in recurrent and attention layers"
            )

    def check_state(self, other: nn.Module) -> None:
        """Check that logits depend on the state alone: not on the module that has it, nor on earlier passes."""
        numbers, marks = numbers_of(other), marks_of(other)
        self.load(other)
        for training in (True, False):
            self.logits(other, training, self.y, seed=5)
        changed = [key for key, value in marks_of(other).items() if marks.get(key) != value]
        if not self.same(other):
            one, two = (marks_of(self.made(seed), by_value=True) for seed in (0, 1))
            unlike = [key for key, value in one.items() if two.get(key) != value]
            if self.same(self.made(1).float()) or (changed and not unlike):
                self.refuse_memory(changed)
            if not unlike:
                self.refuse(
                    "returned other logits for the same inputs, weights and seed: draw with torch's global generator, "
                    "which runs seed, and not with others, such as NumPy's default_rng()"
                )
            self.refuse(
                "returned other logits when its state was loaded into a second module: it computes with "
                f"{_some(unlike)}, which its state_dict does not hold and which differ each time it is "
                "built. Register tensors as buffers (register_buffer), and put layers into nn.ModuleList"
            )
        for key, (value, put) in numbers_of(other).items():
            if key in numbers and value != (old := numbers[key].value):
                put(value + FAR * (value - old))
                alike = self.same(other)
                put(old)
                if not alike:
                    self.refuse_memory([key])

    def refuse_memory(self, names: list[str]) -> NoReturn:
        """Raise the InputError for a module that remembers earlier batches."""
        self.refuse(
            f"keeps {_some(names) or 'something'} from one batch to the next outside of its state, so that clients "
            "would share it, and the number of workers would change the result: register it as a buffer "
            "(register_buffer), or do not keep it"
        )

    def same(self, module: nn.Module) -> bool:
        """Return whether a module with the state of the trial has the logits of the first module, in both modes."""
        self.load(module)
        try:
            evaluated, trained = self.logits(module, False), self.logits(module, True)
        except InputError:
            return False
        self.load(module)
        return close(evaluated, self.evaluated) and close(trained.detach(), self.trained)

    def reseeds(self) -> list[str]:
        """Return a warning about a builder or a forward pass that sets the seed of torch's global generator."""
        states: dict[str, list[Tensor]] = {}
        for (when, _), state in self.ended.items():
            states.setdefault(when, []).append(state)
        found = [when for when, own in states.items() if any(map(torch.equal, own, own[1:]))]
        return [
            f"The model {self.name!r} sets torch's seed {when}, so that all seeds of an experiment draw the same "
            "there: leave torch.manual_seed out."
            for when in found[:1]
        ]

    def constants(self, module: nn.Module) -> list[str]:
        """Return a warning about tensors that the logits depend on and that are attributes without being registered."""
        own = {id(each) for each in chain(module.parameters(), module.buffers())}
        found = {
            key: value
            for key, (value, _) in values_of(module).items()
            if isinstance(value, Tensor) and value.is_floating_point() and value.dim() and id(value) not in own
        }
        if not found:
            return []
        self.load(module)
        for value in found.values():
            value.requires_grad_(True)
        with rng.seeded(2):
            logits = module.eval()(self.x.clone())
        used = torch.autograd.grad(logits.sum(), [*found.values()], allow_unused=True)
        if not (names := [key for key, gradient in zip(found, used, strict=True) if gradient is not None]):
            return []
        return [
            f"The model {self.name!r} computes its logits with {_some(names)}, which is neither a parameter nor a "
            "buffer, so that it is not in the state and does not move to a GPU: register it as a buffer "
            "(register_buffer)."
        ]


def mixes(build: Callable[[], nn.Module], shape: Shape, kind: Kind) -> bool:
    """Return whether the logits of an input depend on the other inputs of its batch in training mode."""
    x, y = torch.split(kind.drawn(shape, 2 * SAMPLES), SAMPLES)
    with rng.seeded(0):
        module = build().float().train()
    found = []
    for inputs in (x, torch.cat([x[:1], y[1:]]), torch.cat([y[:-1], x[-1:]])):
        with rng.seeded(0), torch.no_grad():
            found.append(module(inputs))
    return not (close(found[1][:1], found[0][:1]) and close(found[2][-1:], found[0][-1:]))


def _built(module: nn.Module, other: nn.Module) -> str:
    """Return a hash of what a builder makes. Values count if two modules with other seeds have the same ones."""
    own, others = module.state_dict(), other.state_dict()
    kinds = {name: [*each.shape, str(each.dtype)] for name, each in own.items()}
    fixed = {name: gist(each) for name, each in own.items() if name in others and torch.equal(each, others[name])}
    one, two = ({name: value for name, (value, _) in values_of(each).items()} for each in (module, other))
    plain = {
        name: repr(value)
        for name, value in one.items()
        if isinstance(value, int | float | str | None) and "/" not in repr(value) and two.get(name) == value
    }
    texts = [re.sub(r" at 0x[0-9a-f]+", "", repr(each)) for each in (module, other)]
    return digest([kinds, fixed, plain, texts[0] if texts[0] == texts[1] else ""])


def _without_zeros(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's state, with random numbers for parameters that are all zero and would hide other layers."""
    generator, parameters = torch.Generator().manual_seed(0), dict(module.named_parameters())
    return {
        name: 0.1 * torch.randn(tensor.shape, generator=generator)
        if name in parameters and not tensor.any()
        else tensor.clone()
        for name, tensor in module.state_dict().items()
    }


def _generators() -> dict[str, Any]:
    """Return the states of the global generators that runs do not seed, by name."""
    legacy: Any = np.random.get_state()
    return {"Python": random.getstate(), "NumPy": (legacy[0], tuple(legacy[1].tolist()), *legacy[2:])}


def _leaves(logits: Tensor) -> list[Tensor]:
    """Return the tensors that receive a gradient when the logits are differentiated."""
    waiting, seen, found = [logits.grad_fn], set[Any](), list[Tensor]()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            found.append(leaf)
        waiting += [each for each, _ in node.next_functions]
    return found


def close(one: Tensor, other: Tensor) -> bool:
    """Return whether logits, (n, K) each, are equal up to rounding."""
    scale = other[other.isfinite()].abs().amax().item() if bool(other.isfinite().any()) else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and (torch.equal(one, other) or torch.allclose(one, other, equal_nan=True))


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" * (len(names) > 3)
    return ", ".join(islice(names, 3)) + rest
