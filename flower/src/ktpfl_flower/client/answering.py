"""A client's replies to messages in bytes, over a socket that other accounts cannot open."""

import json
import logging
from multiprocessing.connection import Listener

from ktpfl_flower.client.member import Member
from ktpfl_flower.client.private import refusal
from ktpfl_flower.frames import Frame
from ktpfl_flower.wire import frame_of, packet_of
from ktpfl_pipeline.core.errors import InputError

logger = logging.getLogger(__name__)


def answered(member: Member, kind: str, frame: Frame) -> Frame:
    """Return a client's reply to a message; after any error it is a refusal, and the client's log has the cause."""
    try:
        return frame_of(member.answer(kind, packet_of(frame)))
    except InputError as error:
        return frame_of(refusal(kind, error))
    except Exception as error:
        logger.exception("The message %r could not be answered.", kind)
        return refused(kind, f"the client's program failed ({type(error).__name__}); its log has the details.")


def refused(kind: str, why: str) -> Frame:
    """Return the refusal of a message."""
    logger.warning("Refused the message %r: %s", kind, why)
    return Frame(json.dumps({"refused": why}))


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
                frame = Frame.from_bytes(connection.recv_bytes())
                connection.send_bytes(answered(member, kind, frame).to_bytes())
            except (EOFError, OSError, ValueError) as error:  # the sender disconnected, or is not a SuperNode
                logger.warning("A message was not delivered (%s).", error)
