"""Faults of real clients: none is lost, each is told of, and what goes on equals a run without those who were out."""

import pytest
from client_fault_table import FAULTS, outcome
from real_faults import DOCUMENT, document


@pytest.mark.parametrize("place", range(len(FAULTS)), ids=lambda place: f"{FAULTS[place].what}, {FAULTS[place].method}")
def test_nothing_is_lost(place):
    fault, found = FAULTS[place], outcome(place)
    out = {r.round: sorted({*r.absent, *r.late, *r.diverged}) for r in found.history}
    assert found.differs == []
    assert {t: clients for t, clients in out.items() if clients} == fault.out, found.said
    assert (found.begun > 1) == fault.ends
    assert fault.says in " ".join(found.said)
    assert [r.round for r in found.history] == [1, 2]


def test_the_page_has_what_is_said_today():
    assert DOCUMENT.read_text("utf-8") == document(), "write it again: python docs/generate/real_faults.py"
