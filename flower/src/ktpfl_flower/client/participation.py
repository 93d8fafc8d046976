"""A client's part of one run: what it was told, and the models that it keeps on its disk."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktpfl_flower import operations
from ktpfl_flower.alike import Arithmetic
from ktpfl_flower.client.private import private
from ktpfl_flower.wire import Initial, Left, kinds_of
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
    """What the server tells of a run before its first round."""

    run: str
    method: str
    seed: Seed
    rounds: Count
    classes: Count
    clients: list[int]
    training: LocalTraining
    distillation: Distillation
    compute: Arithmetic


class Participation:
    """A client's part of one run.

    Attributes:
        told: what the server said of the run.
        folder: of the run; it has the models that are kept, by their numbers.
        space: the client's workspace.
        known: what the operations' arguments are checked against.
        last: number of the newest message.
    """

    def __init__(self, told: Told, of: Setting, me: int, folder: Path) -> None:
        self.told, self.folder, self._me = told, folder, me
        with private():  # its file names the device
            self.space = Workspace(of)
        self.known = operations.Known(of, operations.kinds_at(of, me))
        self.last = 0
        self._here: dict[int, Params] = {}

    def take(self, number: Any) -> None:
        """Take a message by its number, which grows: an older one would delete models that were made since.

        Raises:
            InputError: if it is not newer than all before.
        """
        if type(number) is not int or not self.last < number < 2**63:
            raise InputError(f"message {str(number)[:40]} is not newer than {self.last}, which came before it.")
        self.last = number

    def readable(self) -> list[int]:
        """Return the numbers of the models that are kept and can be read."""
        return [number for number in sorted(self._numbers()) if self._found(number) is not None]

    def resolved(self, value: Any) -> Any:
        """Return arguments with the models that they mean in the place of their names."""
        if isinstance(value, tuple):
            return tuple(map(self.resolved, value))
        if isinstance(value, Left):
            if (found := self._found(value.version)) is None:
                raise LostError(f"its model {value.version} is not there, or cannot be read.")
            return found
        if isinstance(value, Mapping):
            return {name: tensor.to(self.space.device) for name, tensor in value.items()}
        if not isinstance(value, Initial):
            return value
        if value.architecture != (own := self.known.setting.by_id[self._me].architecture):
            raise InputError(f"it means the initial {value.architecture[:80]!r}, and this client has {own}.")
        return self.known.setting.initial_model(own)

    def keep(self, value: Any, travels: bool) -> Any:
        """Return what is said of a model that an operation made: its number, and itself where it `travels`."""
        if not isinstance(value, Mapping) or not value:
            return value
        number = secrets.randbits(62)  # no two models are mistaken for one, whatever was lost before
        with private():
            checkpoint.save(self._file(number), {"settings": {"run": self.told.run}, "model": dict(value)})
        self._here[number] = value
        return Left(number, kinds_of(value), value if travels else None)

    def forget_all_but(self, keep: list[int]) -> None:
        """Delete models that the server means no more."""
        with private():
            for number in set(self._numbers()).difference(keep):
                self._file(number).unlink(missing_ok=True)
                self._here.pop(number, None)

    def _found(self, number: int) -> Params | None:
        """Return a model that is kept; None where it is not there or cannot be read, which the log tells."""
        if number not in self._here:
            try:
                content = checkpoint.load(self._file(number), {"run": self.told.run}, self.space.device)
            except InputError as error:
                logger.warning("A model that was kept is lost: %s", error)
                return None
            if content is None:
                return None
            self._here[number] = content["model"]
        return self._here[number]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.pt"

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.pt") if file.stem.isdecimal()]
