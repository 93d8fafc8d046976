"""Handles of the clients' models at the server, and how a message names a model."""

from typing import Any

from torch import Tensor

from ktpfl_flower import operations
from ktpfl_flower.wire import INITIAL, Left
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Handle, Params


class Held(Handle):
    """A model that a client has stored, or the state of the optimizer that made it.

    Attributes:
        version: the number that the client gave it.
        model: its tensors, if the client sent them.
    """

    def __init__(self, client: int, left: Left, shapes: Params) -> None:
        """Store what the client sent about the model."""
        self._client, self.version, self.model, self.shapes = client, left.version, left.model, dict(shapes)

    def is_of(self, n: int) -> bool:
        """Return whether client n has the model."""
        return n == self._client

    def open(self) -> dict[str, Tensor]:
        """Return the model; raise InputError if the client did not send it, as the method does not exchange models."""
        if self.model is None:
            raise InputError(
                f"Client {self._client}'s model would have to leave the client, but this method does not declare to "
                "exchange models. Choose a method that does, or switch off the setting that needs the models."
            )
        return dict(self.model)

    def kept(self) -> Any:
        """Return the model if the client sent it, else this handle: what the final state of a run contains."""
        return self if self.model is None else self.open()

    def stored(self) -> Any:
        """Return the model if the client sent it, else its number: what a checkpoint contains."""
        return {"held": [self._client, self.version]} if self.model is None else self.open()


class Drawn(Handle):
    """The initial model of an architecture, drawn from the seed when it is opened, so that it need not travel."""

    version = INITIAL

    def __init__(self, setting: Setting, architecture: str) -> None:
        """Draw nothing yet."""
        self._architecture, self._setting = architecture, setting
        self.shapes = dict(operations.shapes_of(setting, architecture))

    def is_of(self, n: int) -> bool:
        """Return whether it is the initial model of client n."""
        return self._architecture == self._setting.by_id[n].architecture

    def open(self) -> dict[str, Tensor]:
        """Return the model."""
        return dict(Setting.initial_model(self._setting, self._architecture))

    def kept(self) -> Any:
        """Return this handle, so that the client is asked for its initial model by its number."""
        return self

    def stored(self) -> Any:
        """Return the architecture: what a checkpoint contains."""
        return {"drawn": self._architecture}


def named(value: Any, n: int) -> Any:
    """Return an argument in which the numbers of models that client n has replace the models."""
    if isinstance(value, Held | Drawn):
        return Left(value.version) if value.is_of(n) else value.open()
    return tuple(named(part, n) for part in value) if isinstance(value, tuple) else value
