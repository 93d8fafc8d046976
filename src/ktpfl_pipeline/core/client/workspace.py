"""The state that one process keeps between client operations."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import joint, kinds, rng, weights
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.model_facts import prepared
from ktpfl_pipeline.core.setting import DTYPES, Setting, Split
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, state_of

OWN = ""
"""The name of the client's own architecture in counts of samples."""
RESIDENT = 0.5
"""The largest share of a GPU's free memory in which clients' samples stay permanently."""
logger = logging.getLogger(__name__)


class Workspace:
    """The state of one process between calls: its device, one module per architecture, the inputs on the device."""

    def __init__(self, setting: Setting) -> None:
        """Claim the device of `setting` and fix the number of torch threads."""
        self.setting = setting
        self.device = setting.device
        self.dtype = DTYPES[setting.compute.dtype]
        self.format = setting.memory_format
        # by architecture, role, and the common architecture of a model of two, which is empty for others
        self._modules: dict[tuple[str, str, str], nn.Module] = {}
        self._tensors: dict[tuple[str, str, str], Params] = {}
        self._heads: dict[tuple[Any, ...], nn.Linear] = {}
        self._splits: dict[tuple[int, str], LabeledDataset] = {}
        self._public: Tensor | None = None
        self.optimizer_state: Params | None = None  # see `take_state`
        if torch.get_num_threads() != setting.compute.threads:
            torch.set_num_threads(setting.compute.threads)
        setting.claim()
        if self.device.type == "cuda":  # sums of bfloat16 in float32, and the same kernels every time
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False

    def take_state(self) -> Params | None:
        """Return the state from which the first optimizer of an operation starts, set by `outcome.Resuming`.

        None means a fresh optimizer whose state is not kept, such as the second one of an operation.
        """
        state, self.optimizer_state = self.optimizer_state, None
        return state

    def architecture(self, n: int | str) -> str:
        """Return the architecture of client n, or n itself if it is the architecture of a model of the server."""
        return n if isinstance(n, str) else self.setting.by_id[n].architecture

    def module(self, n: int | str, params: Params, role: str = "own") -> nn.Module:
        """Return the module of client n's architecture, or of the architecture n, loaded with `params`.

        There is one module per architecture and `role`; two modules in use at a time need different roles. The module
        of a joint model includes the common extractor.
        """
        name, common = self.architecture(n), joint.common_of(params)
        if kind := joint.kind_of(params):
            role = f"{role} {kind.PART}"
        if (key := (name, role, common)) not in self._modules:
            with rng.seeded(0):  # initial weights are overwritten at once
                built = joint.built(self._built, self._head_name, name, params).to(self.dtype)
                built = built._apply(partial(sent, device=self.device))  # type: ignore[no-untyped-call]  # as `to` is
                built.train()
            if self.setting.compute.dtype == "bfloat16":
                reduce(built, self.device.type)
            self._modules[key], self._tensors[key] = built, state_of(built)
        module = self._modules[key]
        weights.load(module, self._tensors[key], params)
        return module

    def _built(self, architecture: str) -> nn.Module:
        """Return a new module, which does not change its input; what is frozen in it has its initial values."""
        facts = self.setting.facts(architecture)
        order = self.format if facts.channels_last else torch.contiguous_format
        return prepared(self.setting.drawn(architecture), facts).to(memory_format=order)

    def whole(self, n: int, params: Params) -> dict[str, Tensor]:
        """Return a copy of client n's model as `state_dict` has it, with its frozen tensors and all names."""
        return {name: tensor.clone() for name, tensor in self.module(n, params).state_dict().items()}

    def head(self, n: int | str, module: nn.Module) -> tuple[str, nn.Module]:
        """Return the name and the layer of the head of client n's `module`; raise InputError if it has no head."""
        if isinstance(module, joint.Joint):
            return "head", module.head
        name = self._head_name(self.architecture(n))
        return name, module.get_submodule(name)

    def _head_name(self, architecture: str) -> str:
        return self.setting.head(architecture).name

    def linear(self, head: Params) -> nn.Linear:
        """Return a linear layer with a head's ``weight``, (K, F), and ``bias``, if any. Each shape has one layer."""
        shape = (*head["weight"].shape, *head)
        if shape not in self._heads:
            classes, width = head["weight"].shape
            self._heads[shape] = weights.loaded(lambda: nn.Linear(width, classes, bias="bias" in head), head)
        self._heads[shape].load_state_dict(head)
        return self._heads[shape]

    def counted(self, modules: Iterable[nn.Module], samples: int) -> Counter[str]:
        """Return the samples that were backpropagated through each of these modules, by architecture.

        A joint model counts as two. Modules that are not models of the federation, such as a part of a model, count as
        the client's own architecture.
        """
        names = {id(module): (name, common) for (name, _, common), module in self._modules.items()}
        models = [name for module in modules for name in names.get(id(module), ()) if name] or [OWN]
        return Counter({name: samples * number for name, number in Counter(models).items()})

    def numbers(self, inputs: Tensor) -> Tensor:
        """Return raw private or public inputs as a model takes them. Features are already standardized."""
        kind = kinds.of(inputs)
        floats = kind.to_float(inputs, self.dtype)
        return floats.contiguous(memory_format=self.format) if kind.pixels else floats

    def split(self, n: int, name: Split) -> LabeledDataset:
        """Return one split of client n on the device. If `resident`, it stays there; otherwise each call copies it."""
        if (n, name) in self._splits:
            return self._splits[n, name]
        samples: LabeledDataset = getattr(self.setting.by_id[n], name)
        there = LabeledDataset(sent(samples.inputs, self.device), sent(samples.labels, self.device))
        if self.resident:
            self._splits[n, name] = there
        return there

    @cached_property
    def resident(self) -> bool:
        """Whether the clients' samples stay on the device: always on a CPU; on a GPU if they fit `RESIDENT`."""
        if self.device.type != "cuda":
            return True
        splits = [part for client in self.setting.clients for part in (client.train, client.validation, client.test)]
        size = sum(part.inputs.nbytes + part.labels.nbytes for part in splits)
        free, _ = torch.cuda.mem_get_info(self.device)
        if size > RESIDENT * free:
            logger.warning(
                "The clients' samples take %.1f GB and %.1f GB are free on %s: they are copied there client by client.",
                *(size / 1e9, free / 1e9, self.device),
            )
        return size <= RESIDENT * free

    def public(self, batch: Tensor) -> Tensor:
        """Return the public inputs at `batch`, (B, ...), on the device."""
        if self._public is None:
            self._public = sent(self.setting.public, self.device)
        return self._public.index_select(0, sent(batch, self.device))


def reduce(module: nn.Module, device: str) -> None:
    """Make the module compute its products in bfloat16, forward and backward; the module returns float32.

    A product has factors with 8 significant bits, is summed in float32, and is rounded to 8 bits (torch's autocast).
    On a CPU there are two exceptions. Grouped (depthwise) convolutions train in float32, because their backward pass in
    oneDNN is several times slower in bfloat16. LSTMs always compute in float32, because oneDNN has no bfloat16 LSTM for
    some CPUs.
    """
    for part in module.modules() if device == "cpu" else ():
        layer: Any = part
        if getattr(part, "groups", 1) > 1:
            layer.forward = _in_float32(layer.forward, training_only=True)
        elif isinstance(part, nn.LSTM):  # oneDNN's bfloat16 LSTM needs support by the CPU
            layer.forward = _in_float32(layer.forward, training_only=False)
    built: Any = module
    forward: Callable[[Tensor], Tensor] = built.forward

    def reduced(inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return forward(inputs).float()

    built.forward = reduced


def _in_float32(forward: Callable[..., Any], *, training_only: bool) -> Callable[..., Any]:
    """Return a layer's `forward` on a CPU with inputs and states in float32.

    With `training_only`, only passes with gradients enabled are in float32.
    """

    def whole(inputs: Tensor, *states: tuple[Tensor, ...] | None) -> Any:
        if training_only and not torch.is_grad_enabled():
            return forward(inputs)
        with torch.autocast("cpu", enabled=False):
            return forward(inputs.float(), *(state and tuple(part.float() for part in state) for state in states))

    return whole
