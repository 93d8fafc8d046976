"""The end of a run: each client that takes part stores its own final model."""

import logging
from typing import Any

from ktpfl_flower.server.executor import RealFederation
from ktpfl_pipeline.core.errors import ClientsMissing, LostError
from ktpfl_pipeline.core.method import Method

logger = logging.getLogger(__name__)


def conclude(method: Method[Any], state: Any, fed: RealFederation) -> None:
    """Let each client that takes part store its own final model, and name the missing clients."""
    missing = _missing(fed)
    for n in sorted(fed.executor.bare):
        logger.warning("Client %d has lost its own model; its model.pt stays as it is.", n)
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
            "%s Start these clients and run the same command again, so that each stores its own model.",
            ClientsMissing(missing),
        )


def _missing(fed: RealFederation) -> dict[int, str]:
    """Return which clients are missing; the executor notes clients that came back without their models."""
    while True:
        try:
            return fed.executor.missing(fed, list(fed.by_id), fed.rounds + 1, 0)
        except LostError as error:
            logger.warning("%s", str(error).partition(":")[0])
