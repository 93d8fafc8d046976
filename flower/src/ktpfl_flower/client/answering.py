"""A client's replies to messages in bytes, over a socket that other accounts cannot open."""

import logging
from multiprocessing.connection import Listener

from ktpfl_flower.client.member import Member
from ktpfl_flower.client.private import refusal
from ktpfl_flower.wire import from_bytes, to_bytes
from ktpfl_pipeline.core.errors import InputError

logger = logging.getLogger(__name__)


def answered(member: Member, kind: str, message: bytes) -> bytes:
    """Return a client's reply to a message; after any error it is a refusal, and the client's log has the cause."""
    try:
        return to_bytes(member.answer(kind, from_bytes(message)))
    except InputError as error:
        return to_bytes(refusal(kind, error))
    except Exception as error:
        logger.exception("The message %r could not be answered.", kind)
        return refused(kind, f"the client's program failed ({type(error).__name__}); its log has the details.")


def refused(kind: str, why: str) -> bytes:
    """Return the refusal of a message."""
    return to_bytes(refusal(kind, InputError(why)))


def serve(member: Member, listener: Listener) -> None:
    """Answer one message after another, until the listener is closed."""
    while True:
        try:
            connection = listener.accept()
        except ConnectionError:
            continue
        except OSError:  # the listener is closed
            return
        with connection:
            try:
                kind = connection.recv_bytes(100).decode(errors="replace")
                connection.send_bytes(answered(member, kind, connection.recv_bytes()))
            except (EOFError, OSError) as error:  # the sender disconnected
                logger.warning("A message was not delivered (%s).", error)
