"""Which methods private training covers, where the toy data do not suit a method."""

from typing import Any

import pytest
import toy

from ktpfl_pipeline.core import compatibility, engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.methods.local import Local


class Named(Local):
    """Reads a layer that the toy models do not have."""

    def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> Any:
        """Raise KeyError."""
        return state.models[cohort[0]]["fc.weight"]


class Vouched(Named):
    """Says itself that it only trains locally."""

    @classmethod
    def uncovered(cls) -> str:
        """Return no reason."""
        return ""


def test_a_method_that_cannot_be_run_on_toy_data_is_not_covered() -> None:
    fed = toy.alike(training=LocalTraining(epochs=1, batch_size=4, privacy=Privacy(1.0, delta=0.04)))
    (conflict,) = compatibility.conflicts(Named, fed)
    assert conflict.text().startswith(
        "training.privacy is set, which excludes this method: whether ε covers it is unknown, because it fails on toy "
        "data (KeyError: 'fc.weight'); a method that only trains locally may"
    )
    with pytest.raises(InputError, match="ε covers it is unknown"):
        engine.run(Named(), fed, engine.Schedule(1))
    assert not [*compatibility.conflicts(Vouched, fed)]
