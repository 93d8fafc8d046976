"""The privacy budget of a client: which private trainings its samples took part in, and the ε of all of them together.

The ledger is a file next to the client's models. It is written before a training starts, so a client that is stopped
never counts too little. Noise and samples of each training come from a seed that only the client knows and that is
never used again: with a known seed the noise could be removed, and with a repeated one two trainings could be
subtracted.
"""

import json
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

from ktpfl_flower.client.private import private
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.privacy import composed, sampling
from ktpfl_pipeline.core.settings import LocalTraining, Privacy

logger = logging.getLogger(__name__)


def fresh_seed() -> int:
    """Return a seed for the noise of one training."""
    return secrets.randbits(63)


@dataclass(frozen=True)
class Budget:
    """A client's privacy budget.

    Attributes:
        ledger: the file with the numbers of steps, by noise multiplier and q.
        most: the largest ε in all runs together; None: no limit.
    """

    ledger: Path
    most: float | None

    def check_run(self, privacy: Privacy | None) -> None:
        """Raise InputError if a run's training is not private, although the client has a limit."""
        if self.most is not None and privacy is None:
            raise InputError("this client only takes part in runs with private training; set training.privacy.")

    def spend(self, training: LocalTraining, samples: int) -> None:
        """Enter one private training on this number of samples, and log the ε of all trainings so far.

        Raises:
            InputError: if ε would exceed the limit.
        """
        privacy = training.privacy
        assert privacy is not None
        steps, share = sampling(samples, training.batch_size)
        spent = self._read()
        key = f"{privacy.noise_multiplier!r} {share!r}"
        spent[key] = spent.get(key, 0) + training.epochs * steps
        pairs = ((*map(float, each.split()), number) for each, number in spent.items())
        epsilon = composed(privacy.delta, tuple((noise, q, number) for noise, q, number in pairs))
        if self.most is not None and epsilon > self.most:
            raise InputError(
                f"this client's privacy budget of ε = {self.most:g} does not suffice for another training."
            )
        with private(), replacing(self.ledger, f"The ledger {self.ledger}") as partial:
            partial.write_text(json.dumps(spent))
        logger.info("Private training: ε = %.3g in all runs so far (δ = %g).", epsilon, privacy.delta)

    def _read(self) -> dict[str, int]:
        with private():
            try:
                found = json.loads(self.ledger.read_text()) if self.ledger.exists() else {}
                return {str(key): int(number) for key, number in found.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise InputError(
                    f"The ledger of private trainings, {self.ledger}, cannot be read ({error}). Restore it from a "
                    "backup; without it, the ε of this client's samples is unknown."
                ) from error
