"""Which methods private training covers, where the toy data do not suit a method."""

from typing import Any

from ktpfl_pipeline.core.coverage import covers
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.methods.local import Local


class Named(Local):
    """Reads a layer that the toy models do not have."""

    def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> Any:
        """Raise KeyError."""
        return state.models[cohort[0]]["fc.weight"]


def test_a_method_that_cannot_be_run_on_toy_data_counts_as_covered() -> None:
    assert covers(Named)
