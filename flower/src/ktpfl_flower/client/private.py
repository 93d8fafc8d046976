"""What does not leave a client: the words of what is wrong with its own things, and its samples, but for their seal."""

import hashlib
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import replacing

logger = logging.getLogger(__name__)
SECRET = 32
"""Bytes of a client's secret."""


class PrivateError(InputError):
    """What is wrong with a client's own file, samples or disk, in words that do not leave it: see `refusal`."""


@contextmanager
def private() -> Iterator[None]:
    """Let what goes wrong with the client's own file, samples or disk stay in its log.

    Raises:
        PrivateError: in the place of an error that may have a path, a name or a label in it.
    """
    try:
        yield
    except (InputError, OSError) as error:
        raise PrivateError(str(error)) from error


def refusal(kind: str, error: InputError) -> Packet:
    """Return the refusal of a message of a `kind` as it leaves the client, whose log has all of it."""
    logger.warning("Refused %s: %s", kind, error)
    told = (
        "its own file, samples or disk cannot be used; its log says why." if isinstance(error, PrivateError) else error
    )
    return Packet({"refused": str(told)})


def seal(samples: LabelledDataset, secret: Path) -> str:
    """Return a hash of samples, keyed by a client's own secret: who has not got it cannot guess at them.

    Args:
        samples: of the client.
        secret: the file that keeps it, made if it is not there.

    Raises:
        PrivateError: if the secret cannot be read or made.
    """
    with private():
        found = hashlib.blake2b(key=_secret(secret), digest_size=8)
    for tensor in (samples.inputs, samples.labels):
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def _secret(place: Path) -> bytes:
    """Return the 32 bytes at a place beside the client's file, made if they are not there: kept models may be lost."""
    if not place.exists():
        with replacing(place, f"The secret {place}") as partial:
            partial.touch(0o600)
            partial.chmod(0o600)
            partial.write_bytes(secrets.token_bytes(SECRET))
    if len(found := place.read_bytes()) != SECRET:
        raise InputError(
            f"The secret {place} has {len(found)} bytes, and not {SECRET}: delete it; runs that are under way will not "
            "know this client again."
        )
    return found
