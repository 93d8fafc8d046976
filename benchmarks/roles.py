"""KT-pFL's coefficients between the speaking roles of Shakespeare: do they follow architectures or plays?

    python benchmarks/roles.py data/07_model_output/shakespeare/kt_pfl/result.json

The script reads the finished runs of `kedro run --pipelines=compare_shakespeare` and prints the tables of
docs/results/text.md. The tables show mean weights by architecture. A permutation test shows whether roles of one play
give each other more weight than roles of different plays with the same pair of architectures.
"""

import json
import sys
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

PLAYS = {
    "Coriolanus": ("Aufidius", "Coriolanus", "Menenius", "Volumnia"),
    "Henry VI and Richard III": ("Buckingham", "Gloucester", "King Henry Vi", "King Richard Iii", "Queen Margaret"),
    "Measure for Measure": ("Duke Vincentio", "Isabella"),
    "Richard II": ("Duke Of York", "Henry Bolingbroke"),
    "Romeo and Juliet": ("Capulet", "Friar Laurence", "Juliet", "Nurse", "Romeo"),
    "The Taming of the Shrew": ("Tranio",),
    "The Tempest": ("Prospero",),
    "The Winter's Tale": ("Autolycus", "Camillo", "Leontes", "Paulina"),
}
PERMUTATIONS = 10_000


def tables(runs: list[dict[str, Any]]) -> None:
    """Print the weights in the final matrices, (N, N) per seed, by architecture and by play."""
    names, architectures = runs[0]["names"], np.array(runs[0]["architectures"])
    matrices = np.array([run["coefficients"] for run in runs])  # (seeds, N, N)
    n = len(names)
    others = ~np.eye(n, dtype=bool)
    mean = matrices.mean(axis=0)
    kinds = list(dict.fromkeys(architectures.tolist()))
    print("| student | itself | " + " | ".join(f"each `{kind}`" for kind in kinds) + " |")
    print("| --- | --- |" + " --- |" * len(kinds))
    residual = mean.copy()
    for student in kinds:
        cells = [f"{n * mean.diagonal()[architectures == student].mean():.2f}"]
        for teacher in kinds:
            block = np.outer(architectures == student, architectures == teacher) & others
            cells.append(f"{n * mean[block].mean():.2f}")
            residual[block] -= mean[block].mean()
        print(f"| `{student}` | {' | '.join(cells)} |")
    strongest = np.where(others, mean, -1).argmax(axis=1)
    print(f"\nStrongest teacher of the same architecture: {(architectures[strongest] == architectures).sum()} of {n}.")
    print("Strongest teacher:", ", ".join(f"{names[i]}: {names[j]}" for i, j in enumerate(strongest)))
    pairs = [np.corrcoef(one[others], other[others])[0, 1] for one, other in combinations(matrices, 2)]
    print(f"Mean correlation of the matrices of two seeds: {fmean(pairs):.2f}.")

    play = np.array([next(title for title, roles in PLAYS.items() if name in roles) for name in names])
    found = _within(play, residual, others)
    rng = np.random.default_rng(0)
    chance = []
    for _ in range(PERMUTATIONS):
        shuffled = play.copy()
        for kind in kinds:
            at = np.flatnonzero(architectures == kind)
            shuffled[at] = play[rng.permutation(at)]
        chance.append(_within(shuffled, residual, others))
    p = (np.sum(np.array(chance) >= found) + 1) / (PERMUTATIONS + 1)
    print(f"Roles of one play: {n * found:+.3f} in units of 1/N against other roles, one-sided p = {p:.2f}.")


def _within(play: np.ndarray, residual: np.ndarray, others: np.ndarray) -> float:
    return float(residual[(play[:, None] == play[None]) & others].mean())


if __name__ == "__main__":
    tables(json.loads(Path(sys.argv[1]).read_text())["runs"])
