"""Writes docs/real_faults.md, what became of faults of real clients: ``python docs/generate/real_faults.py``."""

import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.append(str(Path(__file__).parents[2] / "flower" / "tests" / "support"))
sys.path.append(str(Path(__file__).parents[2] / "flower" / "src"))

from client_fault_table import FAULTS, outcome
from client_faults import Fault, Outcome

DOCUMENT = Path(__file__).parents[1] / "real_faults.md"
INTRODUCTION = """# Faults of real clients

{number} faults were injected into runs of [real clients](real_clients.md), each into a run of its own: three clients,
two rounds, in one process, with messages through bytes. No run was lost; in three a client lost its own model and began
anew. The test suite injects all of them, and `python docs/generate/real_faults.py` writes this page.
`python benchmarks/real_clients_killed.py` does four of them to processes over the loopback, with SIGKILL and SIGSTOP
([what was seen](real_clients.md#what-was-tried)).

But for these three, a run must end **equal**, bit for bit in history, matrix and models, to one in a single process: to
the undisturbed one, or, where a client fell out of a round, to the one in which it was not there in that round. *Same
command* says that the run had ended, by its last sentence or by SIGKILL, and went on from its checkpoint when it was
begun again, after what the sentence asks for. Client 1 is the one that things befall.

| method | injected | what happened | what was said |
| --- | --- | --- | --- |
"""


def document() -> str:
    """Return the page."""
    rows = [row(fault, outcome(place)) for place, fault in enumerate(FAULTS)]
    return INTRODUCTION.format(number=len(rows)) + "\n".join(rows) + "\n"


def row(fault: Fault, found: Outcome) -> str:
    """Return the table's row of a fault.

    Raises:
        AssertionError: if the run was lost.
    """
    assert not found.differs, (fault, found)
    said = "<br>".join(dict.fromkeys(plain(line) for line in found.said)) or "nothing"
    return f"| `{fault.method}` | {fault.what} | {happened(fault, found)} | {said} |"


def happened(fault: Fault, found: Outcome) -> str:
    """Say what became of the run."""
    out = [f"without client {n} in round {r.round}" for r in found.history for n in {*r.absent, *r.late, *r.diverged}]
    equal = f"equal to a run {' and '.join(out)}" if out else "equal to the undisturbed run"
    parts = [equal if fault.same else "the client goes on with its initial model"]
    for record in found.history:
        if record.stale:
            earlier = any(r.accuracy for r in found.history if r.round < record.round)
            stands = f"its evaluation of round {record.round - 1} stands for round {record.round}"
            parts.append(stands if earlier else f"round {record.round} is evaluated without it")
    parts += ["same command"] * fault.ends
    return "; ".join(parts)


def plain(line: str) -> str:
    """Return what was said without what differs by machine and run."""
    line = re.sub(r"\{[^{}]*'torch'[^{}]*\}", "{...}", line)
    line = re.sub(r"\b[0-9a-f]{16}\b|(?<=seed-0-)[0-9a-f]{8}\b", "...", line)
    return re.sub(r"\b\d{12,}\b", "...", line).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
