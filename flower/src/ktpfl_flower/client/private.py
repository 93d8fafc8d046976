"""Data that never leave a client: its samples, except a fingerprint, and errors about its file, samples and disk."""

import hashlib
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.machine.files import replacing

logger = logging.getLogger(__name__)
SECRET = 32
"""Length of a client's secret in bytes."""


class PrivateError(InputError):
    """An error about a client's own file, samples or disk, whose message never leaves the client; see `refusal`."""


@contextmanager
def private() -> Iterator[None]:
    """Keep errors about the client's own file, samples or disk in the client's log.

    Raises:
        PrivateError: instead of an error whose message may contain a path, a name or a label.
    """
    try:
        yield
    except (InputError, OSError) as error:
        raise PrivateError(str(error)) from error


def refusal(kind: str, error: InputError) -> Packet:
    """Return the refusal of a message as it leaves the client, whose log has the whole message."""
    logger.warning("Refused the message %r: %s", kind, error)
    if isinstance(error, PrivateError):
        return Packet({"refused": "its own file, samples or disk cannot be used; its log states the cause."})
    return Packet({"refused": str(error)})


def fingerprint(samples: LabeledDataset, secret: Path) -> str:
    """Return a fingerprint of samples, 16 hexadecimal digits: it changes with them and reveals nothing else.

    The hash is keyed by the client's secret, so other parties cannot test guesses of the samples. The file of the
    secret is written if it does not exist.

    Raises:
        PrivateError: if the secret cannot be read or written.
    """
    with private():
        if not secret.exists():
            with replacing(secret, f"The secret {secret}") as partial:
                partial.touch(0o600)
                partial.chmod(0o600)
                partial.write_bytes(secrets.token_bytes(SECRET))
        if len(key := secret.read_bytes()) != SECRET:
            raise InputError(
                f"The secret {secret} has {plural(len(key), 'byte')} instead of {SECRET}. Delete it; runs in progress "
                "will then no longer recognize this client."
            )
    found = hashlib.blake2b(key=key, digest_size=8)
    for tensor in (samples.inputs, samples.labels):
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()
