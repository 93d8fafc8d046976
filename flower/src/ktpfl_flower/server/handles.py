"""Models of clients as the server has them: by name, unless they came with an answer.

What a method holds of a client's model is a handle, `Held`. It can be opened where the model came with the answer, as
it does with methods whose declared exchange is models; else nobody can open it, and the client alone has it.
"""

from typing import Any

import torch
from torch import Tensor

from ktpfl_flower.wire import DTYPES as KINDS
from ktpfl_flower.wire import Initial, Left
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.setting import DTYPES, Setting
from ktpfl_pipeline.core.weights import Handle, state_of


class Held(Handle):
    """A client's model, which that client has.

    Attributes:
        client: whose.
        version: its number there.
        kinds: of its tensors.
    """

    def __init__(self, client: int, left: Left) -> None:
        """Take what the client said of it."""
        self.client, self.version, self.kinds, self._model = client, left.version, left.kinds, left.model
        self.shapes = {
            name: torch.empty(shape, dtype=KINDS[dtype], device="meta") for name, (dtype, shape) in left.kinds.items()
        }

    def open(self) -> dict[str, Tensor]:
        """Return the model, where it came with the client's answer.

        Raises:
            InputError: if it did not: this method's clients send no models.
        """
        if self._model is None:
            raise InputError(
                f"Client {self.client}'s model would have to leave it, and models are not what this method declares to "
                "exchange: take a method that does, or do without what asks for models."
            )
        return dict(self._model)

    def kept(self) -> Any:
        """Return what a run's last state has of it: the model where it came, else itself."""
        return self if self._model is None else self.open()

    def stored(self) -> Any:
        """Return what a checkpoint has of it: the model where it came, else its name."""
        if self._model is not None:
            return self.open()
        kinds = {name: [dtype, list(shape)] for name, (dtype, shape) in self.kinds.items()}
        return {"held": [self.client, self.version], "kinds": kinds}


class Drawn(Handle):
    """The initial model of an architecture, drawn from the seed where it is looked at: it needs not travel."""

    def __init__(self, setting: Setting, architecture: str) -> None:
        """Draw nothing yet."""
        self.architecture, self._setting = architecture, setting
        with torch.device("meta"):
            module = setting.build(architecture).to(DTYPES[setting.compute.dtype])
        self.shapes = state_of(module)

    def open(self) -> dict[str, Tensor]:
        """Return the model."""
        return dict(Setting.initial_model(self._setting, self.architecture))

    def stored(self) -> Any:
        """Return what a checkpoint has of it: its architecture."""
        return {"drawn": self.architecture}


def named(value: Any, n: int) -> Any:
    """Return an argument with the names of models that client n has, or can draw, in their places."""
    if isinstance(value, Held):
        return Left(value.version) if value.client == n else value.open()
    if isinstance(value, Drawn):
        return Initial(value.architecture)
    return tuple(named(part, n) for part in value) if isinstance(value, tuple) else value
