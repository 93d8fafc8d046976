"""The end of a run: each client that is there keeps the model that is its own now."""

import logging
from typing import Any

from ktpfl_flower.server.executor import RealFederation
from ktpfl_pipeline.core.errors import ClientsMissing, LostError
from ktpfl_pipeline.core.method import Method

logger = logging.getLogger(__name__)


def conclude(method: Method[Any], state: Any, fed: RealFederation) -> None:
    """Let each client that is there keep its own model, and name the clients that are not."""
    missing = _missing(fed)
    for n in sorted(fed.executor.bare):
        logger.warning("Client %d has lost the model that was its own; it keeps what an earlier end told it.", n)
    there = [n for n in fed.by_id if n not in missing and n not in fed.executor.bare]
    while there:
        try:
            fed.executor.end(method.personal(state, there, fed))
            break
        except ClientsMissing as error:
            missing |= error.found
            there = [n for n in there if n not in missing]
    if missing:
        logger.warning(
            "%s Start what has ended, and give the same command again, to let each keep its model.",
            ClientsMissing(missing),
        )


def _missing(fed: RealFederation) -> dict[int, str]:
    """Return which clients are not there; a client that came back without its models is noted by the executor."""
    while True:
        try:
            return fed.executor.missing(fed, list(fed.by_id), fed.rounds + 1, 0)
        except LostError as error:
            logger.warning("%s", str(error).partition(":")[0])
