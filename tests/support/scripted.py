"""Clients that are out of given rounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ktpfl_pipeline.core.settings import Reliability


@dataclass(frozen=True)
class Scripted(Reliability):
    """Clients that are out of a round as was seen elsewhere."""

    out: Mapping[int, set[int]] = field(default_factory=dict)

    def absent(self, cohort: Iterable[int], t: int, seed: int) -> list[int]:
        return [n for n in cohort if n in self.out.get(t, ())]
