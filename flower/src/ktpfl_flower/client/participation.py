"""A client's part of one run: the run's settings, and the models that it stores on its disk."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktpfl_flower import operations
from ktpfl_flower.alike import Arithmetic
from ktpfl_flower.client.private import private
from ktpfl_flower.wire import Initial, Left
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError, LostError
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.validation import Count, Seed
from ktpfl_pipeline.core.weights import Params

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Told:
    """The settings of a run, which the server sends before its first round, with the number of that message."""

    run: str
    method: str
    seed: Seed
    rounds: Count
    classes: Count
    clients: list[int]
    training: LocalTraining
    distillation: Distillation
    compute: Arithmetic
    number: Seed


class Participation:
    """A client's part of one run.

    Attributes:
        told: the settings of the run, which the server sent.
        folder: the folder with the stored models, each named by its number.
        space: the client's workspace.
        known: the values against which the arguments of operations are checked.
        last: the number of the newest message.
    """

    def __init__(self, told: Told, of: Setting, me: int, folder: Path) -> None:
        self.told, self.folder, self._me = told, folder, me
        with private():  # an error may name the device of its file
            self.space = Workspace(of)
        self.known = operations.Known(of, operations.shapes_of(of, of.by_id[me].architecture))
        self.last = 0
        self._here: dict[int, Params] = {}

    def take(self, number: Any) -> None:
        """Accept a message by its number; an older message would delete newer models.

        Raises:
            InputError: if the number is not greater than all before.
        """
        if type(number) is not int or not self.last < number < 2**63:
            raise InputError(
                f"message {str(number)[:40]} is not newer than message {self.last}, which was received before."
            )
        self.last = number

    def readable(self) -> list[int]:
        """Return the numbers of the stored models that can be read."""
        return [number for number in sorted(self._numbers()) if self._found(number) is not None]

    def resolved(self, value: Any) -> Any:
        """Return arguments in which the models replace their numbers and names."""
        if isinstance(value, tuple):
            return tuple(map(self.resolved, value))
        if isinstance(value, Left):
            if (found := self._found(value.version)) is None:
                raise LostError(f"its model {value.version} does not exist or cannot be read.")
            return found
        if isinstance(value, Mapping):
            return {name: tensor.to(self.space.device) for name, tensor in value.items()}
        if not isinstance(value, Initial):
            return value
        if value.architecture != (own := self.known.setting.by_id[self._me].architecture):
            raise InputError(f"it names the initial model of {value.architecture[:80]!r}, but this client has {own}.")
        return self.known.setting.initial_model(own)

    def keep(self, value: Any, travels: bool) -> Any:
        """Store a model that an operation made, and return its number, with the model itself if it `travels`."""
        if not isinstance(value, Mapping) or not value:
            return value
        number = secrets.randbits(62)  # random, so a number is never used again after a loss
        with private():
            checkpoint.save(self._file(number), {"settings": {"run": self.told.run}, "model": dict(value)})
        self._here[number] = value
        return Left(number, value if travels else None)

    def forget_all_but(self, keep: list[int]) -> None:
        """Delete the models that the server no longer needs."""
        with private():
            for number in set(self._numbers()).difference(keep):
                self._file(number).unlink(missing_ok=True)
                self._here.pop(number, None)

    def _found(self, number: int) -> Params | None:
        """Return a stored model; None if it does not exist or, with a warning, cannot be read."""
        if number not in self._here:
            try:
                content = checkpoint.load(self._file(number), {"run": self.told.run}, self.space.device)
            except InputError as error:
                logger.warning("A stored model is lost: %s", error)
                return None
            if content is None:
                return None
            self._here[number] = content["model"]
        return self._here[number]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.pt"

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.pt") if file.stem.isdecimal()]
