"""APFL: two models and their mixture, and how α is learned."""

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy, linear

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.apfl import APFL
from ktpfl_pipeline.methods.local import Local

EVERYONE, NAMES = list(toy.IDS), ["1.weight", "1.bias"]


def test_a_round_is_that_of_a_plain_implementation() -> None:
    fed, method, cohort = toy.alike(dtype="float64"), APFL(alpha=0.3, alpha_rate=0.5), [3, 7, 12]
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    found, uploads, alphas = method.personal(after, EVERYONE, fed), [], after.alphas.tolist()
    for n in cohort:
        v, w = ([params[name].clone() for name in NAMES] for params in (state.models[n], state.common))
        alpha, samples = state.alphas.tolist()[EVERYONE.index(n)], fed.by_id[n].train
        for batch in by_hand.batches(fed, n, 2):
            inputs, labels = by_hand.pixels(samples)[batch].flatten(1), samples.labels[batch]
            points = [alpha * a + (1 - alpha) * b for a, b in zip(v, w, strict=True)], w
            leaves = [[part.clone().requires_grad_() for part in point] for point in points]
            mixed, common = (torch.autograd.grad(cross_entropy(linear(inputs, *leaf), labels), leaf) for leaf in leaves)
            slope = sum(float(((a - b) * g).sum()) for a, b, g in zip(v, w, mixed, strict=True))
            v = [a - 0.1 * alpha * g for a, g in zip(v, mixed, strict=True)]
            w = [b - 0.1 * g for b, g in zip(w, common, strict=True)]
            alpha = min(1.0, max(0.0, alpha - 0.5 * slope))
        uploads.append(w)
        assert alphas[EVERYONE.index(n)] == pytest.approx(alpha, abs=1e-12)
        for name, a, b in zip(NAMES, v, w, strict=True):
            assert torch.allclose(report.after_local[n][name], alpha * a + (1 - alpha) * b, rtol=0, atol=1e-12)
            expected = alpha * a + (1 - alpha) * after.common[name]
            assert torch.allclose(found[n][name], expected, rtol=0, atol=1e-12)
    for place, name in enumerate(NAMES):
        assert torch.allclose(after.common[name], sum(w[place] for w in uploads) / 3, rtol=0, atol=1e-12)
    assert alphas[2] == state.alphas[2]
    assert report.metrics == {"alpha": pytest.approx(sum(alphas[EVERYONE.index(n)] for n in cohort) / 3, abs=1e-12)}


def test_with_alpha_1_it_is_local_training_and_with_alpha_0_everybody_has_the_common_model() -> None:
    fed = toy.alike(dtype="float64")
    own, none, alone = (engine.run(m, fed, Schedule(rounds=2)) for m in (APFL(1.0, 0.0), APFL(0.0, 0.0), Local()))
    assert toy.distance(APFL().personal(own.state, EVERYONE, fed), alone.state.models) < 1e-13
    assert toy.distance(APFL().personal(none.state, EVERYONE, fed), dict.fromkeys(EVERYONE, none.state.common)) < 1e-13


def test_alpha_stays_between_0_and_1_and_its_rate_is_that_of_the_models() -> None:
    fed = toy.alike(dtype="float64")
    wild = engine.run(APFL(alpha_rate=100.0), fed, Schedule(rounds=3)).state.alphas
    assert ((wild >= 0) & (wild <= 1)).all()
    assert (wild != 0.5).all()
    runs = [
        engine.run(method, fed, Schedule(rounds=2)).state for method in (APFL(alpha_rate=None), APFL(alpha_rate=0.1))
    ]
    assert toy.same(*runs)


def test_by_default_alpha_is_the_smallest_of_the_papers_and_stays() -> None:
    """The paper's adaptive α, at the rate of the models, is a preset."""
    fed = toy.alike()
    state = engine.run(create("apfl"), fed, Schedule(rounds=1)).state
    assert state.alphas.tolist() == [0.25] * 5
    assert create("apfl_adaptive") == APFL(alpha=0.5, alpha_rate=None)
    moved = engine.run(create("apfl_adaptive"), toy.again(fed), Schedule(rounds=1)).state
    assert not torch.equal(moved.alphas, torch.full((5,), 0.5, dtype=torch.float64))
