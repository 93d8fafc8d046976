"""How often a choice on few validation samples is right, and how often intervals of single clients cover the truth.

    python benchmarks/decisions.py    prints the table of docs/fair_comparisons.md, and the coverage of intervals

Two models of a client are right on a sample with given probabilities. On `SHARED` of the samples the same random number
decides for both, so that they are mostly right together, as models that are trained alike.
"""

from itertools import chain, product
from statistics import fmean

import numpy as np

from ktpfl_pipeline.analysis.statistics import answers_variance, on_samples
from ktpfl_pipeline.core.settings import Choice

OWN, SHARED = 0.75, 0.7
"""The probability with which the own model is right, and the share of samples on which both models agree."""
GAINS = (-0.1, -0.05, 0.02, 0.05, 0.1)
VALIDATION = (5, 10, 20, 50, 100, 200)
TESTS, SEEDS, TRAINED = (30, 100), (3, 5), (0.0, 0.05)
"""Numbers of test samples and seeds, and the standard deviation over seeds of the probability to be right."""
GAIN, REDRAWN, CLIENTS = 0.05, 0.3, 1000
"""The method's gain, the share of samples on which another training decides otherwise, and the simulated clients."""


def keeping(gain: float, samples: int, draw: np.random.Generator) -> float:
    """Return the share of clients that keep the method's model, which is better by `gain`."""
    own = draw.random((CLIENTS * 10, samples))
    theirs = np.where(draw.random(own.shape) < SHARED, own, draw.random(own.shape))
    pairs = zip((theirs < OWN + gain).mean(axis=1), (own < OWN).mean(axis=1), strict=True)
    return fmean(Choice().keeps(float(one), float(other), samples) for one, other in pairs)


def covered(same: bool, tested: int, seeds: int, trained: float, draw: np.random.Generator) -> bool:
    """Return whether the interval of one client includes the true gain.

    All seeds have the same test samples, or each draws them from four times as many samples of the client.
    """
    samples = 4 * tested
    own = draw.random(samples)
    both = np.stack([np.where(draw.random(samples) < SHARED, own, draw.random(samples)), own])
    answers, values = list[list[int]](), list[float]()
    for _ in range(seeds):
        decides = np.where(draw.random(both.shape) < REDRAWN, draw.random(both.shape), both)
        right = decides < np.array([[OWN + GAIN], [OWN]]) + draw.normal(0, trained, (2, 1))
        chosen = np.arange(tested) if same else draw.permutation(samples)[:tested]
        answers.append((right[0, chosen].astype(int) - right[1, chosen]).tolist())
        values.append(fmean(answers[-1]))
    each = [fmean(answer) for answer in zip(*answers, strict=True)] if same else [*chain(*answers)]
    found = on_samples(values, answers_variance(each), tested if same else samples)
    assert found is not None
    assert found.ends is not None
    return found.ends[0] <= GAIN <= found.ends[1]


def main() -> None:
    draw = np.random.default_rng(0)
    print("| true gain (points) | " + " | ".join(map(str, VALIDATION)) + " |")
    for gain in GAINS:
        print(f"| {100 * gain:+.0f} | " + " | ".join(f"{100 * keeping(gain, n, draw):.0f}" for n in VALIDATION) + " |")
    for same, tested in product((True, False), TESTS):
        shares = (fmean(covered(same, tested, *each, draw) for _ in range(CLIENTS)) for each in product(SEEDS, TRAINED))
        shown = " | ".join(f"{100 * share:.1f}" for share in shares)
        print(f"| {'the same' if same else 'others'} | {tested} | {shown} |")


if __name__ == "__main__":
    main()
