"""The page docs/project/faults.md: faults injected, by kind and place, their outcomes, and the error messages."""

import re
from collections import Counter
from pathlib import Path

from faults import (
    AWAY,
    DAMAGED,
    FULL,
    KILLED,
    LINK,
    LOST,
    MEMORY,
    REFUSED,
    SURVIVED,
    TERMINAL,
    UNREADABLE,
    WORKER,
    Outcome,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "project" / "faults.md"
KINDS = (KILLED, FULL, AWAY, UNREADABLE, DAMAGED, WORKER, MEMORY, TERMINAL, LINK)
VERDICTS = (SURVIVED, REFUSED, LOST)
INTRODUCTION = """---
orphan: true
---

# Fault tolerance

{number:,} faults were injected into complete runs, one fault per run, drawn with seed {seed}; {lost} were lost.
`python tests/faults/campaign.py --faults={number} --seed={seed}` repeats the campaign and writes this page; it took
{minutes}, one run after another. The test suite contains a short form of it.

Each run is `kedro run --env=test --pipelines=hetero_digits` with `hetero_digits.rounds=3`: KT-pFL, five clients, and an
MLflow store in SQLite. After a fault its cause is removed as the error message says, and the same command is given
again. The result is then compared with an undisturbed run: models, matrix and settings bit for bit, the history without
wall times, the result, the partition, and checksums. In MLflow there must be one finished run per key,
one point per metric and round, and all files.

- **Survived:** no user action was needed. The run continued, or the same command finished it.
- **Refused:** the run stopped with a one-sentence message and no traceback, and its MLflow run was marked as failed
  where that could still be written. After the user did what the message says, the same command finished it.
- **Lost:** anything else: another result, a second MLflow run, a point logged twice, a run left `RUNNING`, a
  traceback or a hang.
"""
METHOD = """## How faults are injected

| fault | how |
| --- | --- |
| killed with SIGKILL | at a chosen moment, milliseconds later, or by the clock |
| disk full | the rest of a small disk is filled, where one may be mounted; or the size of files is limited. No space, or up to 200 kB |
| tracking database taken away | deleted, moved away, replaced by a folder, overwritten, or locked by another process for a second or permanently |
| file unreadable | opening it fails with *Permission denied* or *Input/output error*, injected because permissions do not stop root |
| file damaged | truncated, or one bit flipped: a checkpoint between two runs, a partition or a result between writing and reading, any output before `--only-missing-outputs` |
| worker killed | one of two (`compute.executor`), or every one that receives a call |

Moments are the files that a run opens and renames, the statements that its database receives, and its training
steps. To save time, runs are forked from a process that has imported everything, and figures are blank, although
they are written. Power cuts, which lose data that is not yet on the disk, are not among the faults.
"""  # noqa: E501 - rows of a table


def document(outcomes: list[Outcome], seed: int, seconds: float) -> str:
    """Return the page.

    Args:
        outcomes: one for each fault that was injected.
        seed: of the list of faults.
        seconds: how long the campaign took in all.
    """
    lost = sum(outcome.verdict == LOST for outcome in outcomes) or "none"
    minutes = f"{seconds / 60:.0f} minutes"
    parts = [
        INTRODUCTION.format(number=len(outcomes), seed=seed, lost=lost, minutes=minutes),
        "## Verdicts by kind of fault\n",
        *verdicts(outcomes),
        "\n## Faults by place\n",
        *places(outcomes),
        "",
        METHOD,
        "## Error messages\n",
        "Paths are shortened.\n",
        *messages(outcomes),
    ]
    return "\n".join(parts)


def verdicts(outcomes: list[Outcome]) -> list[str]:
    """Return the rows of the table of kinds by verdicts."""
    counted = Counter((outcome.fault.kind, outcome.verdict) for outcome in outcomes)
    rows = [(kind, *(counted[kind, verdict] for verdict in VERDICTS)) for kind in KINDS]
    totals = ("**all**", *(sum(counted[kind, verdict] for kind in KINDS) for verdict in VERDICTS))
    head = [_row("fault", "injected", *VERDICTS), _row("---", *["---:"] * 4)]
    return head + [_row(name, sum(counts), *counts) for name, *counts in [*rows, totals]]


def places(outcomes: list[Outcome]) -> list[str]:
    """Return the rows of the table of places by kinds."""
    hits = Counter((outcome.fault.place, outcome.fault.kind) for outcome in outcomes)
    rows = [_row(place, *(hits[place, kind] or "" for kind in KINDS)) for place in sorted({place for place, _ in hits})]
    return [_row("place", *KINDS), _row("---", *["---:"] * len(KINDS)), *rows]


def messages(outcomes: list[Outcome]) -> list[str]:
    """Return the error messages of each kind of fault, with how often each was seen."""
    lines = []
    for kind in KINDS:
        seen = Counter(shown(text) for outcome in outcomes if outcome.fault.kind == kind for text in outcome.sentences)
        texts = [f"{number:3} × {text}" for text, number in sorted(seen.items())]
        lines += [f"### {kind.capitalize()}\n", "```text", *texts, "```\n"] if seen else []
    return lines


def shown(sentence: str) -> str:
    """Return a sentence with what differs from run to run left out."""
    sentence = re.sub(r"/\S*/project/", "", sentence)
    sentence = re.sub(r"seed-0-\w+", "seed-0-…", re.sub(r"Client \d", "Client n", sentence))
    sentence = re.sub(r"mlruns/hetero_digits/\w+/\S+?(?=[):])", "mlruns/…", sentence)
    return re.sub(r"tmp/\w+/", "tmp/…/", sentence)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
