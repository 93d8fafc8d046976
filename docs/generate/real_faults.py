"""Writes docs/project/real_faults.md, injected faults of real clients: ``python docs/generate/real_faults.py``."""

import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.append(str(Path(__file__).parents[2] / "flower" / "tests" / "support"))
sys.path.append(str(Path(__file__).parents[2] / "flower" / "src"))

from client_fault_table import FAULTS, outcome
from client_faults import Fault, Outcome

DOCUMENT = Path(__file__).parents[1] / "project" / "real_faults.md"
INTRODUCTION = """---
orphan: true
---

# Faults of real clients

{number} faults were injected into runs of [real clients](../real_clients.md), one fault per run: three clients and
two rounds in one process, with messages encoded as bytes. No run was lost; in three runs a client lost its own
model and restarted from its initial one. The test suite injects all of them, and `python
docs/generate/real_faults.py` writes this page. `python benchmarks/real_clients_killed.py` injects four of them into
separate processes over the loopback interface, with SIGKILL and SIGSTOP.

Except for these three, a run must end **equal** to a run in a single process, bit for bit in history, matrix and
models: equal to the undisturbed run, or, if a client dropped out of a round, to a run in which it was absent in
that round. *Same command* means that the run had stopped, with its last message or by SIGKILL, and continued from
its checkpoint when it was started again, after what the message asks for. The faults happen to client 1.

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
    parts = [equal if fault.same else "the client continues with its initial model"]
    for record in found.history:
        if record.stale:
            earlier = any(r.accuracy for r in found.history if r.round < record.round)
            stands = f"its evaluation of round {record.round - 1} is used for round {record.round}"
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
