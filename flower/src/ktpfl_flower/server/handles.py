"""Handles of clients' models at the server.

A method has a handle, `Held`, of a client's model. The handle can be opened if the client sent the model, which it does
only for methods that declare to exchange models. Otherwise only the client has the model.
"""

from typing import Any

from torch import Tensor

from ktpfl_flower.operations import shapes_of
from ktpfl_flower.wire import INITIAL, Left
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Handle, Params


class Held(Handle):
    """A model that a client has stored.

    Attributes:
        client: the client.
        version: the number that the client gave the model.
    """

    def __init__(self, client: int, left: Left, shapes: Params) -> None:
        """Store what the client sent about the model; `shapes` is empty for what is only a part of a client's state."""
        self.client, self.version, self._model, self.shapes = client, left.version, left.model, dict(shapes)

    def is_of(self, n: int) -> bool:
        """Return whether client n has the model."""
        return n == self.client

    def open(self) -> dict[str, Tensor]:
        """Return the model if the client sent it.

        Raises:
            InputError: if the client did not, because the method does not exchange models.
        """
        if self._model is None:
            raise InputError(
                f"Client {self.client}'s model would have to leave the client, but this method does not declare to "
                "exchange models. Choose a method that does, or switch off the setting that needs the models."
            )
        return dict(self._model)

    def kept(self) -> Any:
        """Return the model if the client sent it, else this handle: what the final state of a run contains."""
        return self if self._model is None else self.open()

    def stored(self) -> Any:
        """Return the model if the client sent it, else its number: what a checkpoint contains."""
        if self._model is not None:
            return self.open()
        return {"held": [self.client, self.version], "model": bool(self.shapes)}


class Drawn(Handle):
    """The initial model of an architecture, drawn from the seed when it is opened, so that it need not travel."""

    version = INITIAL

    def __init__(self, setting: Setting, architecture: str) -> None:
        """Draw nothing yet."""
        self.architecture, self._setting = architecture, setting
        self.shapes = dict(shapes_of(setting, architecture))

    def is_of(self, n: int) -> bool:
        """Return whether it is the initial model of client n."""
        return self.architecture == self._setting.by_id[n].architecture

    def open(self) -> dict[str, Tensor]:
        """Return the model."""
        return dict(Setting.initial_model(self._setting, self.architecture))

    def stored(self) -> Any:
        """Return the architecture: what a checkpoint contains."""
        return {"drawn": self.architecture}


def named(value: Any, n: int) -> Any:
    """Return an argument in which the numbers of models that client n has replace the models."""
    if isinstance(value, Held | Drawn):
        return Left(value.version) if value.is_of(n) else value.open()
    return tuple(named(part, n) for part in value) if isinstance(value, tuple) else value
