"""LG-FedAvg: own extractors, and one head that is averaged."""

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import linear

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.lg_fedavg import LGFedAvg

EVERYONE = list(toy.IDS)


def test_a_round_is_that_of_a_plain_implementation() -> None:
    fed, method, cohort = toy.federation(architectures=("linear", "conv"), dtype="float64"), LGFedAvg(8), [3, 7, 12]
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    heads, sizes = [], []
    for n in cohort:
        samples = fed.by_id[n].train
        extractor, weight, bias = by_hand.train_with_head(fed, n, 2, state.models[n], state.head, 8)
        heads.append((weight.detach(), bias.detach()))
        sizes.append(len(samples))
        images = by_hand.pixels(fed.by_id[n].test)
        for params, head in ((report.after_local[n], heads[-1]), (method.personal(after, [n], fed)[n], None)):
            weight, bias = head or (after.head["weight"], after.head["bias"])
            expected = linear(by_hand.pooled(extractor.eval()(images), 8), weight, bias)
            found = by_hand.module(fed, n, params).eval()(images)
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    for name, parts in zip(("weight", "bias"), zip(*heads, strict=True), strict=True):
        expected = sum(size * part for size, part in zip(sizes, parts, strict=True)) / sum(sizes)
        assert torch.allclose(after.head[name], expected, rtol=0, atol=1e-12)


def test_a_single_client_trains_as_with_its_own_head() -> None:
    """A cohort of one, all 64 features of a linear model: the rounds are local training from the common head."""
    fed, method = toy.federation(1, architectures=("linear",), dtype="float64"), LGFedAvg(64)
    run = engine.run(method, fed, Schedule(rounds=3))
    models = method.personal(method.init(fed), [3], fed)
    for t in (1, 2, 3):
        models = fed.train(models, t)
    assert toy.distance(method.personal(run.state, [3], fed), models) < 1e-13


def test_absent_clients_use_the_new_head_on_their_old_extractors() -> None:
    fed, method = toy.federation(), LGFedAvg(5)
    before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, _ = method.round(before, [3, 7], 2, fed)
    old, new = (method.personal(state, [20], fed)[20] for state in (before, after))
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == {"4.weight", "4.bias"}


def test_newcomers_begin_with_the_common_head() -> None:
    fed, method = toy.federation(), LGFedAvg(5)
    state, _ = method.round(method.init(fed), [3, 7, 11], 1, fed)
    joined = method.join(state, method.personal(state, [3, 7, 11], fed), [12, 20], fed)
    assert toy.same(joined.models, method.personal(state, [12, 20], fed))  # who was never in a cohort has it too
    assert joined.traffic == dict.fromkeys([12, 20], Traffic(parameters_down=4 * 18))


@pytest.mark.parametrize("dimension", [1, 64])
def test_only_the_head_travels(dimension: int) -> None:
    fed = toy.federation()
    _, report = LGFedAvg(dimension).round(LGFedAvg(dimension).init(fed), [20, 3], 1, fed)
    size = 4 * (3 * dimension + 3)
    assert report.traffic == dict.fromkeys([20, 3], Traffic(parameters_up=size, parameters_down=size))
