"""FedALA: how the common model is taken over, weight by weight."""

import math

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods.fedala import FedALA, aggregated, last_names

EVERYONE, HEAD = list(toy.IDS), ["4.weight", "4.bias"]


def learned(fed: Federation, n: int, t: int, own: Params, common: Params, weights: Params, passes: int) -> Params:
    """Return W after `passes` over half of the client's samples, with a rate of 2."""
    samples, stream = fed.by_id[n].train, fed.stream("aggregation", t, n)
    chosen = torch.randperm(len(samples), generator=stream)[: math.ceil(0.5 * len(samples))]
    weights = dict(weights)
    for _ in range(passes):
        for batch in sgd.batches(len(chosen), 8, stream):
            start = dict(common)
            for name in HEAD:
                start[name] = own[name] + (common[name] - own[name]) * weights[name]
            module = by_hand.module(fed, n, start)
            loss = cross_entropy(module(by_hand.pixels(samples)[chosen[batch]]), samples.labels[chosen[batch]])
            slopes = torch.autograd.grad(loss, [module[-1].weight, module[-1].bias])
            for name, slope in zip(HEAD, slopes, strict=True):
                weights[name] = (weights[name] - 2 * slope * (common[name] - own[name])).clamp(0, 1)
    return weights


def test_rounds_equal_a_plain_implementation() -> None:
    """The second, in which clients learn W for the first time, and the third, in which they go on from it."""
    fed, method = toy.alike("conv", dtype="float64"), FedALA(share=0.5, rate=2.0, first_epochs=3)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    names, ones = fed.trained_names, {name: torch.ones_like(state.common[name]) for name in HEAD}
    for t, cohort, passes in ((2, EVERYONE, 3), (3, [3, 7, 12], 1)):
        after, report = method.round(state, cohort, t, fed)
        uploads, sizes = [], []
        for n in cohort:
            weights = learned(fed, n, t, state.models[n], state.common, state.weights.get(n, ones), passes)
            assert by_hand.differ(after.weights[n], weights) < 1e-12
            module, samples = (
                by_hand.module(fed, n, aggregated(state.models[n], state.common, weights)),
                fed.by_id[n].train,
            )
            for batch in by_hand.batches(fed, n, t):
                loss = cross_entropy(module(by_hand.pixels(samples)[batch]), samples.labels[batch])
                by_hand.descend(list(module.parameters()), loss, 0.1)
            uploads.append(dict(module.named_parameters()))
            sizes.append(len(samples))
            assert by_hand.differ({name: report.after_local[n][name] for name in names}, uploads[-1]) < 1e-12
        common = {
            name: sum(size * model[name] for size, model in zip(sizes, uploads, strict=True)) / sum(sizes)
            for name in names
        }
        assert by_hand.differ({name: after.common[name] for name in names}, common) < 1e-12
        assert any((w < 1).any() for w in after.weights[3].values())
        entries = [torch.cat([w.flatten() for w in after.weights[n].values()]).mean() for n in cohort]
        assert report.metrics == {"aggregation_weight": pytest.approx(float(sum(entries)) / len(cohort), abs=1e-12)}
        state = after


def test_in_its_first_round_a_client_takes_the_common_model_unchanged() -> None:
    fed, method = toy.alike("conv"), FedALA()
    before, _ = method.round(method.init(fed), [3, 7], 1, fed)
    after, report = method.round(before, [3, 12], 2, fed)
    assert set(after.weights) == {3}
    assert toy.same(report.after_local[12], fed.train({12: before.common}, 2)[12])
    assert toy.same(method.personal(after, [20], fed)[20], after.common)


def test_without_a_rate_it_is_fedavg() -> None:
    """W stays at one."""
    fed, method = toy.alike("conv", dtype="float64"), FedALA(rate=0.0)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    _, report = method.round(state, EVERYONE, 2, fed)
    assert toy.distance(report.after_local, fed.train(dict.fromkeys(EVERYONE, state.common), 2)) < 1e-13


def test_the_last_layers() -> None:
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"]
    order = ["0", "1", "4"]
    assert last_names(names, order, 1) == HEAD
    assert last_names(names, order, 2) == names[2:]
    assert last_names(names, order, 9) == names


def test_diverged_weights_reach_no_other_client() -> None:
    """They would make the start of training no number, to which a client that diverged would be restored."""
    training = LocalTraining(1, 8, 0.1)
    fed = toy.federation(architectures=("unlucky",), on_divergence="restore", training=training)
    run = engine.run(FedALA(), fed, Schedule(rounds=4))
    assert any(record.diverged for record in run.history)
    assert toy.finite(run.state)
