"""An emulated GPU: tensors that torch regards as ``cuda:0``, computed on the CPU, with the errors of a real GPU.

Autograd, autocast, vmap, dropout and the code under test take the same paths as on a GPU. An operation on tensors of
both devices raises an error, except for single numbers and indices, as on a GPU. So does a random draw on the device
from a generator of the CPU. The emulation counts the operations that compute, and the times that the host waits for the
device. It does not emulate kernels, asynchrony, speed or drivers.

    with pretend.gpu() as found:
        engine.run(method, federation, schedule)
    found.reads, found.copies, found.launches
"""

import ctypes
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch._library import simple_registry
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "cuda"
PLACE = torch.device("cuda:0")
ATEN = torch.ops.aten
INDEXED = (ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default, ATEN._index_put_impl_.default)
COPIES = (ATEN._to_copy.default, ATEN.copy_.default)
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution", "convolution_backward")
UNCOMPUTED = (
    *("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"),
    *("_local_scalar_dense", "lift_fresh", "_unsafe_view", "alias", "detach"),
)
WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


@dataclass
class Counts:
    """The counts of operations on the device.

    Attributes:
        reads: the number of times that the host waited for a number or a shape from the device.
        copies: the number of times that the host waited for a copy to the device.
        launches: the number of operations that compute. An operation on many tensors (foreach) counts once; views and
            allocations do not count.
        products: the products of matrices and convolutions, by name, dtypes, and whether TF32 was allowed.
        draws: the random draws, by whether their generator had been seeded.
        operations: the launches by name.
        places: the waits by line of this project.
    """

    reads: int = 0
    copies: int = 0
    launches: int = 0
    products: Counter[tuple[str, tuple[torch.dtype, ...], bool]] = field(default_factory=Counter)
    draws: Counter[bool] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        """The number of waits in both directions."""
        return self.reads + self.copies

    def wait(self, reading: bool) -> None:
        """Count one wait, and the line of this project that waits."""
        self.reads, self.copies = self.reads + reading, self.copies + (not reading)
        frame: Any = sys._getframe(1)
        while frame is not None and "ktpfl_pipeline" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None:
            self.places[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"] += 1


class State:
    """The global state of the device."""

    counts = Counts()
    generator = torch.Generator().manual_seed(1).get_state()  # the state of the device's generator
    seeded = False  # whether the generator was seeded since its last reset
    generators: ClassVar[set[int]] = set()  # the generators that were made on the device


class There(Tensor):
    """A tensor on the device. `here` is the tensor on the CPU with which it is computed."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        layout = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        made: There = torch.Tensor._make_wrapper_subclass(cls, here.size(), **layout, device=PLACE)
        made.here = here
        return made

    def tolist(self) -> Any:
        State.counts.wait(reading=True)
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """A context in which the device exists."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # dynamo's wrapper doubles the time
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Kind(NamedTuple):
    """The properties of an operation."""

    name: str
    moves: bool  # whether it copies between devices or uses indices, which needs separate treatment
    waits: bool  # whether the host waits for a number, or for a shape that depends on numbers
    draws: bool
    launches: bool
    multiplies: bool
    counts: bool  # whether any of the above, except draws, is true
    writes: bool  # whether it works in place
    kernel: Any  # the function that computes it on the CPU


HOLDING = (Tensor, list, tuple)
KINDS: dict[int, Kind] = {}
"""The properties by the operations' ids, because computing their hashes doubles the time."""


def kind(func: Any) -> Kind:
    """Return the properties of an operation."""
    if known := KINDS.get(id(func)):
        return known
    name, tags = func.overloadpacket.__name__, set(func.tags)
    waits = (bool(tags & WAITING) and func not in INDEXED) or name == "_linalg_check_errors"
    launches = not func.is_view and name not in UNCOMPUTED
    KINDS[id(func)] = Kind(
        name,
        moves=func in COPIES or func in INDEXED,
        waits=waits,
        draws=torch.Tag.nondeterministic_seeded in tags,
        launches=launches,
        multiplies=name in PRODUCTS,
        counts=waits or launches,
        writes=func._schema.is_mutable,
        kernel=KERNELS.get(func, func),
    )
    return KINDS[id(func)]


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute an operation on the CPU, and return its result as on the device of its tensors."""
    known = KINDS.get(id(func)) or kind(func)
    near: list[Tensor] = []
    far: list[There] = []
    own: list[Any] = []
    for value in args:  # inlines `_here` for the most frequent case
        if type(value) is There:
            far.append(value)
            own.append(value.here)
        else:
            own.append(_here(value, near, far) if isinstance(value, HOLDING) else value)
    named = {name: _here(value, near, far) for name, value in kwargs.items() if name != "device"} if kwargs else kwargs
    there = target = bool(far)
    if kwargs and (asked := kwargs.get("device")) is not None:
        target = asked.type == "cuda"
    if known.moves:
        there, target = _moved(func, args, named, there, target)
    elif there and near and any(value.dim() for value in near):
        raise RuntimeError(f"Expected all tensors to be on the same device: {func} has some on cuda:0 and some on cpu")
    if known.counts and (there or target):
        _count(known, near, far)
    found = _drawn(known.kernel, own, named) if target and known.draws else known.kernel(*own, **named)
    if not target:
        return found
    if not known.writes and isinstance(found, Tensor):
        return There(found)
    return _sent(found, {id(value.here): value for value in far})  # an operation in place returns its argument


def _moved(func: Any, args: Any, named: dict[str, Any], there: bool, target: bool) -> tuple[bool, bool]:
    """Return the source and target device of a copy or an indexing operation, and count waits."""
    if func in INDEXED:
        there = _indexed(func, args)
        return there, there
    blocking = not (named.get("non_blocking") or (len(args) > 2 and args[2]))
    if func is ATEN.copy_.default:
        there, target = type(args[1]) is There, type(args[0]) is There
    if there != target and (there or blocking):
        State.counts.wait(reading=there)
    return there, target


def _count(known: Kind, near: list[Tensor], far: list[There]) -> None:
    counts = State.counts
    if known.waits:
        counts.wait(reading=True)
    if known.launches:
        counts.launches += 1
        counts.operations[known.name] += 1
    if known.multiplies:
        types = tuple(sorted({value.dtype for value in [*near, *far] if value.is_floating_point()}, key=str))
        counts.products[known.name, types, tf32(known.name)] += 1


def tf32(name: str) -> bool:
    """Return whether TF32 is allowed now for a product in float32."""
    backend = torch.backends.cudnn.conv if name.startswith("convolution") else torch.backends.cuda.matmul
    return backend.fp32_precision == "tf32"


def _here(value: Any, near: list[Tensor], far: list[There]) -> Any:
    """Return an argument with tensors on the CPU, and add its tensors to the list of their device."""
    what = type(value)
    if what is There:
        far.append(value)
        return value.here
    if what is list or what is tuple:
        return what([_here(part, near, far) for part in value])
    if isinstance(value, Tensor):
        near.append(value)
    return value


def _sent(value: Any, same: dict[int, There]) -> Any:
    if isinstance(value, Tensor):
        return same[id(value)] if id(value) in same else There(value)
    return type(value)([_sent(part, same) for part in value]) if type(value) in (list, tuple) else value


def _indexed(func: Any, args: Any) -> bool:
    """Return whether the indexed tensor is on the device; count a GPU's waits, and raise a GPU's errors."""
    tensor, indices, *values = args
    there, places = type(tensor) is There, [place for place in indices if place is not None]
    if not there and any(type(place) is There for place in places):
        raise RuntimeError(f"{func}: indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if values and isinstance(values[0], Tensor) and (type(values[0]) is There) != there and values[0].dim():
        raise RuntimeError(f"{func} puts values of one device into a tensor of another")
    for place in places if there else ():
        if type(place) is not There:
            State.counts.wait(reading=False)
        elif place.dtype == torch.bool:
            State.counts.wait(reading=True)
    return there


def _drawn(kernel: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Draw from the given generator of the device, or from the device's default generator, but not from the CPU's."""
    generator = kwargs.get("generator") or next((value for value in args if isinstance(value, torch.Generator)), None)
    if generator is not None:
        if generator._cdata not in State.generators:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu': {kernel}")
        State.counts.draws[True] += 1
        return kernel(*args, **kwargs)
    State.counts.draws[State.seeded] += 1
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(State.generator)
    try:
        return kernel(*args, **kwargs)
    finally:
        State.generator = torch.default_generator.get_state()
        torch.default_generator.set_state(before)


def _normalized(*args: Any) -> Any:
    return *torch.native_batch_norm(*args), torch.empty(0, dtype=torch.uint8)


def _slopes(x: Tensor, g: Tensor, w: Tensor, mean: Any, var: Any, m: Tensor, v: Tensor, eps: float, _: Tensor) -> Any:
    return ATEN.native_batch_norm_backward(g, x, w, mean, var, m, v, True, eps, [True, True, True])


KERNELS = {ATEN.cudnn_batch_norm.default: _normalized, ATEN.cudnn_batch_norm_backward.default: _slopes}
"""Replacements for kernels that the CPU lacks."""


class Generator(torch.Generator):
    """A generator, on the emulated device if asked for."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        (State.generators.add if torch.device(device).type == "cuda" else State.generators.discard)(made._cdata)
        return made


class Chosen:
    """Replaces `torch.cuda.device`."""

    def __init__(self, device: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: Any) -> None: ...


def _save(content: Any, file: Any, *, save: Any = torch.save) -> None:
    """Replace `torch.save`: tensors on the device are written as such."""
    save(_each(content, lambda value: {DEVICE: value.here} if type(value) is There else value), file)


def _load(file: Any, map_location: Any = None, *, load: Any = torch.load, **options: Any) -> Any:
    """Replace `torch.load`: tensors go to `map_location`, or to their earlier device."""
    place = None if map_location is None else torch.device(map_location).type

    def back(value: Any) -> Any:
        if isinstance(value, dict) and [*value] == [DEVICE]:
            return value[DEVICE] if place == "cpu" else There(value[DEVICE])
        return There(value) if isinstance(value, Tensor) and place == DEVICE else value

    return _each(load(file, map_location="cpu", **options), back)


def _each(value: Any, change: Any) -> Any:
    """Return a checkpoint in which `change` was applied to every value."""
    if isinstance(value, dict) and [*value] != [DEVICE]:
        return {key: _each(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each(part, change) for part in value)
    return change(value)


def _seed(number: int) -> None:
    State.generator, State.seeded = torch.Generator("cpu").manual_seed(number).get_state(), True


def _state(device: Any = None) -> Tensor:
    State.generator.seeded = State.seeded
    return State.generator


def _restore(state: Tensor, device: Any = None) -> None:
    State.generator, State.seeded = state, state.seeded


def _synchronize(device: Any = None) -> None:
    State.counts.wait(reading=True)


CUDA = {
    **{"is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "device": Chosen},
    **{"_lazy_init": lambda: None, "is_bf16_supported": lambda *_: True, "manual_seed": _seed},
    **{"get_rng_state": _state, "set_rng_state": _restore, "synchronize": _synchronize},
    **{
        "mem_get_info": lambda *_: (2**33, 2**34),
        "get_device_name": lambda *_: "Pretended GPU",
        "get_device_capability": lambda *_: (9, 0),
    },
}


@contextmanager
def gpu() -> Iterator[Counts]:
    """Let torch find a GPU inside the context, and yield the counts of its operations."""
    before, State.counts = State.counts, Counts()
    inference = torch.autograd.grad_mode.inference_mode
    with ExitStack() as stack:
        for name, value in CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for name, value in {"Generator": Generator, "save": _save, "load": _load}.items():
            stack.enter_context(mock.patch.object(torch, name, value))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", lambda tensor: tensor))
        stack.enter_context(
            mock.patch.object(simple_registry, "find_torch_dispatch_rule", lambda *_: None)
        )  # asked often
        stack.enter_context(
            mock.patch.object(optimizer, "_foreach_supported_types", [Tensor, torch.nn.Parameter, There])
        )
        # Tensors of a subclass cannot leave inference mode, so this mode only switches off gradients here.
        stack.enter_context(mock.patch.object(inference, "__enter__", _without_gradients))
        stack.enter_context(mock.patch.object(inference, "__exit__", _with_gradients))
        stack.enter_context(_primary_context())
        stack.enter_context(_switched(torch._C._set_only_lift_cpu_tensors))
        stack.enter_context(_switched(torch.__future__.set_overwrite_module_params_on_conversion))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(Device())
        try:
            yield State.counts
        finally:
            State.counts = before


@contextmanager
def recorded() -> Iterator[Counts]:
    """Yield the counts of operations inside this context only."""
    outer, State.counts = State.counts, Counts()
    try:
        yield State.counts
    finally:
        State.counts = outer


def _without_gradients(self: Any) -> None:
    self._before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(not self.mode and self._before)


def _with_gradients(self: Any, *error: Any) -> None:
    torch._C._set_grad_enabled(self._before)


@contextmanager
def _switched(switch: Any) -> Iterator[None]:
    switch(True)
    try:
        yield
    finally:
        switch(False)


@cache
def slot() -> int:
    """Return the position of `hasPrimaryContext` in the table of an accelerator's C++ methods, by torch's header.

    Raises:
        RuntimeError: if this version of torch has no such method, so autograd uses another one.
    """
    header = Path(torch.__file__).parent / "include" / "ATen" / "detail" / "AcceleratorHooksInterface.h"
    names = re.findall(r"^  virtual [^(]*?(~?\w+)\(", header.read_text() if header.exists() else "", re.MULTILINE)
    if names[:1] != ["~AcceleratorHooksInterface"] or "hasPrimaryContext" not in names:
        raise RuntimeError(
            f"torch {torch.__version__} has no hasPrimaryContext where tests/support/pretend.py looks ({header}): "
            "see how autograd finds out there whether a device is in use, and correct slot()."
        )
    return 1 + names.index("hasPrimaryContext")  # a destructor has two positions


@contextmanager
def _primary_context() -> Iterator[None]:
    """Tell autograd that CUDA's device is in use. Without a driver, its question would raise an error."""
    torch.ones((), requires_grad=True).backward()  # autograd starts its threads once: none, as there is no GPU yet
    torch._C._ensureCUDADeviceGuardSet()
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    library._ZN2at6detail12getCUDAHooksEv.restype = ctypes.POINTER(ctypes.c_void_p)
    hooks, size = library._ZN2at6detail12getCUDAHooksEv(), ctypes.sizeof(ctypes.c_void_p)
    methods, table = hooks[0], ctypes.c_void_p * 202  # two words precede the methods
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_byte)(lambda *_: True)
    changed = table(*table.from_address(methods - 2 * size))
    changed[2 + slot()] = ctypes.cast(yes, ctypes.c_void_p).value
    hooks[0] = ctypes.addressof(changed) + 2 * size
    try:
        yield
    finally:
        hooks[0] = methods
