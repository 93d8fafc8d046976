"""Answers of a client's process to messages that come as bytes, over a socket that other accounts cannot open."""

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
    """Return a client's answer to a message; whatever goes wrong is refused, and the client's log says why."""
    try:
        return frame_of(member.answer(kind, packet_of(frame)))
    except InputError as error:
        return frame_of(refusal(kind, error))
    except Exception as error:
        logger.exception("This message could not be answered.")
        return refused(kind, f"a {type(error).__name__} at the client, whose log has it.")


def refused(kind: str, why: str) -> Frame:
    """Return the refusal of a message."""
    logger.warning("Refused %s: %s", kind, why)
    return Frame(json.dumps({"refused": why}))


def serve(member: Member, listener: Listener) -> None:
    """Answer one message after another, until the listener is closed."""
    while True:
        try:
            connection = listener.accept()
        except ConnectionError:
            continue
        except OSError:  # it is closed
            return
        with connection:
            try:
                kind = connection.recv_bytes(100).decode(errors="replace")
                frame = Frame.from_bytes(connection.recv_bytes())
                connection.send_bytes(answered(member, kind, frame).to_bytes())
            except (EOFError, OSError, ValueError) as error:  # the other side went away, or is not Flower's
                logger.warning("A message did not come through (%s).", error)
