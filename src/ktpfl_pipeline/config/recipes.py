"""Training recipes as the engine takes them, from their sections of an experiment."""

from typing import Any

from ktpfl_pipeline.config import schema
from ktpfl_pipeline.core.setting import Distillation, LocalTraining
from ktpfl_pipeline.core.training.privacy import Privacy
from ktpfl_pipeline.core.training.recipe import RateSchedule


def local_training(given: schema.Training) -> LocalTraining:
    """Return how clients train on private data; InputError where its settings do not go together."""
    changes = [change.model_dump(exclude_none=True) for change in given.augmentation]
    privacy = None if given.privacy is None else Privacy(**given.privacy.model_dump())
    return LocalTraining(**{**_values(given), "augmentation": tuple(changes), "privacy": privacy})


def distillation(given: schema.Distillation) -> Distillation:
    """Return how models learn from teachers; InputError where its settings do not go together."""
    return Distillation(**_values(given))


def _values(given: schema.Recipe) -> dict[str, Any]:
    values = given.model_dump()
    return {**values, "schedule": RateSchedule(**values["schedule"])}
