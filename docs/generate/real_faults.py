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
two rounds in one process, with messages as bytes. No run was lost. The faults happen to client 1 or to the server.

| outcome | meaning | faults |
| --- | --- | --- |
| undisturbed | the run equals the undisturbed run, except for evaluations that client 1 missed | {undisturbed} |
| without it in round *t* | client 1 dropped out; the run equals a run without it in that round | {without} |
| initial model | client 1 lost its own models and continued with its initial model | {initial} |

*Equals* means bit for bit in history, matrix and models, compared with a run in a single process. *Same command* means
that the run stopped and continued from its checkpoint when the same command was run again. The end of messages about an
excluded client, *It is excluded until it registers again.*, is left out. The test suite injects all faults, and `python
docs/generate/real_faults.py` writes this page.

| method | injected | outcome | messages |
| --- | --- | --- | --- |
"""


def document() -> str:
    """Return the page."""
    found = [outcome(place) for place in range(len(FAULTS))]
    rows = [row(fault, each) for fault, each in zip(FAULTS, found, strict=True)]
    kept = [each for fault, each in zip(FAULTS, found, strict=True) if fault.same]
    without = sum(bool(_out(each)) for each in kept)
    counts = {"undisturbed": len(kept) - without, "without": without, "initial": len(rows) - len(kept)}
    return INTRODUCTION.format(number=len(rows), **counts) + "\n".join(rows) + "\n"


def row(fault: Fault, found: Outcome) -> str:
    """Return the table's row of a fault.

    Raises:
        AssertionError: if the run was lost.
    """
    assert not found.differs, (fault, found)
    said = "<br>".join(dict.fromkeys(plain(line) for line in found.said)) or "none"
    return f"| `{fault.method}` | {fault.what} | {happened(fault, found)} | {said} |"


def happened(fault: Fault, found: Outcome) -> str:
    """Return the outcome of the run in words."""
    parts = [" and ".join(_out(found)) or "undisturbed"] if fault.same else ["initial model"]
    for record in found.history:
        if record.stale:
            earlier = any(r.accuracy for r in found.history if r.round < record.round)
            reused = f"its evaluation of round {record.round - 1} is used for round {record.round}"
            parts.append(reused if earlier else f"round {record.round} is evaluated without it")
    parts += ["same command"] * fault.ends
    return "; ".join(parts)


def _out(found: Outcome) -> list[str]:
    """Return the rounds from which a client dropped out, in words."""
    return [f"without it in round {r.round}" for r in found.history for _ in {*r.absent, *r.late, *r.diverged}]


def plain(line: str) -> str:
    """Return a message without what differs by machine and run."""
    line = line.removesuffix(" It is excluded until it registers again.")
    line = re.sub(r"\{[^{}]*'torch'[^{}]*\}", "{...}", line)
    line = re.sub(r"\b[0-9a-f]{16}\b|(?<=seed-0-)[0-9a-f]{8}\b", "...", line)
    return re.sub(r"\b\d{12,}\b", "...", line).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
