"""Checkpoints: one file per run, replaced whole after each round, readable without running any code from it.

A checkpoint is what torch writes, followed by one line. The line has the version of this package, a hash of the run's
settings, and the SHA-256 sum of everything before the sum. Without the sum, torch would read flipped bits as other
numbers.
"""

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline import __version__
from ktpfl_pipeline.core.errors import InputError, used_up
from ktpfl_pipeline.core.identity import differences, digest
from ktpfl_pipeline.core.machine.files import replacing, sha256

MARK = b"\nktpfl checkpoint "
SUM = 64  # hexadecimal digits
LINE = 1000  # bytes; the last line has about 200


def save(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, strings, lists and dicts of them) so that a reader sees all of it or none.

    A process killed at any moment leaves either the checkpoint that was there or the new one: the content is
    written to a file next to it, forced to the disk, and renamed in one step. ``settings`` in the content are those of
    the run. Raises InputError if the system does not let the file be written; see `replacing`.
    """
    with replacing(path, f"The checkpoint {path}") as partial:
        _write(partial, content)


def _write(partial: Path, content: dict[str, Any]) -> None:
    stamp = {"version": __version__, "settings": digest(content["settings"])}
    with partial.open("w+b") as file:
        torch.save(content, file)
        file.seek(0, os.SEEK_END)
        file.write(MARK + json.dumps(stamp).encode() + b" ")
        file.write(sha256(file, file.tell()).encode())
        file.flush()
        os.fsync(file.fileno())


def load(path: Path, settings: dict[str, Any], device: torch.device) -> dict[str, Any] | None:
    """Return the content of the checkpoint at `path`, its tensors on `device`; None where there is no checkpoint.

    Raises InputError if the file was changed or cannot be read, or was made with other settings or another version.
    """
    if not os.path.lexists(path):
        return None
    try:
        stamp = _verified(path)
        version = str(stamp["version"])
        content: dict[str, Any] | None = None
        if version == __version__:
            content = torch.load(path, map_location=device, weights_only=True)
            made_with = dict(content["settings"])
    except pickle.UnpicklingError as error:  # torch's own message tells how to run the code anyway
        raise InputError(
            f"The checkpoint {path} contains objects that are neither tensors nor numbers and could run code when "
            "read; "
            "delete it to start the run again."
        ) from error
    except OSError as error:
        raise InputError(
            f"The checkpoint {path} cannot be read ({error.strerror or error}); check the permissions of the file, or "
            "delete it to start the run again."
        ) from error
    except (KeyError, TypeError) as error:
        raise InputError(f"The checkpoint {path} contains no settings; delete it to start the run again.") from error
    except Exception as error:  # bytes that are not a checkpoint make the reader fail in any way
        if used_up(error):
            raise  # the checkpoint may be whole
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"The checkpoint {path} cannot be read ({reason}); delete it to start the run again."
        ) from error
    if content is None:
        raise InputError(
            f"The checkpoint {path} was made with version {version} of ktpfl_pipeline, and this is {__version__};"
            " continue with that version, or delete the checkpoint to start the run again."
        )
    if changes := differences(made_with, settings):
        raise InputError(
            f"The checkpoint {path} was made with other settings ({changes}); put them back, or delete the checkpoint."
        )
    return content


def check_form(path: Path, content: dict[str, Any], state: set[str], record: set[str]) -> None:
    """Check that a checkpoint with the right checksum has the parts that a run continues from; else raise InputError.

    `state` and `record` are the names of the entries of the method's state and of a round's record.
    """

    def holds(part: Any, names: set[str]) -> bool:
        return isinstance(part, dict) and set(part) == names

    history, matrices, best, warnings = map(content.get, ("history", "coefficients", "best", "warnings"))
    sound = {
        "state": holds(content.get("state"), state),
        "history": isinstance(history, list) and all(holds(each, record) for each in history),
        "coefficients": isinstance(matrices, list)
        and all(isinstance(each, Tensor) and each.ndim == 2 for each in matrices),
        "client_states": isinstance(content.get("client_states"), dict),
        "processor": isinstance(content.get("processor"), str),
        "warnings": isinstance(warnings, list)
        and all(isinstance(each, tuple) and [*map(type, each)] == [str, str] for each in warnings),
        "best": best is None  # a run that cannot stop early has none
        or (isinstance(best, dict) and isinstance(best.get("round"), int) and holds(best.get("state"), state)),
    }
    if wrong := [name for name, is_sound in sound.items() if not is_sound]:
        raise InputError(
            f"The checkpoint {path} holds no {wrong[0]} that a run can continue from, although its checksum is right: "
            "another program wrote it. Delete it to start the run again."
        )


def _verified(path: Path) -> dict[str, Any]:
    """Check that the checkpoint's file is unchanged, and return the content of its last line.

    Raises ValueError if the file was changed, or is compressed, because a small file could then need much memory.
    """
    if not path.is_file():  # opening a pipe would wait
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - SUM
        file.seek(max(0, size - LINE))
        line = file.read(LINE + SUM)
        mark = line.rfind(MARK)
        if mark < 0:
            raise ValueError("its end, with the checksum, is missing")
        if line[-SUM:].decode("ascii", "replace") != sha256(file, size):
            raise ValueError("its checksum does not match its content: bytes changed on the disk")
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            plain = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            if not plain or sum(member.file_size for member in members) > size:
                raise ValueError("it is compressed, unlike the files that torch writes")
    stamp: dict[str, Any] = json.loads(line[mark + len(MARK) : -SUM])
    return stamp
