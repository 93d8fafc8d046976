"""pFedGraph: the graph as the solution of its problem, the pull, and a whole round."""

from dataclasses import replace

import by_hand
import numpy as np
import torch
import toy
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import average, mix, vector_of
from ktpfl_pipeline.methods.pfedgraph import PFedGraph, PFedGraphState

EVERYONE = list(toy.IDS)


def nearest_distribution(point: Tensor) -> Tensor:
    """Return max(point - s, 0) for the s at which it sums to one, by bisection."""
    low, high = float(point.min()) - 1, float(point.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((point - middle).clamp_min(0).sum()) > 1 else (low, middle)
    return (point - low).clamp_min(0)


def test_a_round_is_that_of_a_plain_implementation() -> None:
    fed, method, cohort = toy.alike(dtype="float64"), PFedGraph(balance=0.5, pull=0.3), [3, 7, 12]
    state, _ = method.round(method.init(fed), [3, 7, 11], 1, fed)  # 12 is new in the next, and is pulled nowhere
    after, report = method.round(state, cohort, 2, fed)
    start, sent = (
        fed.initial_model("linear"),
        average([state.models[n] for n in (3, 7, 11)], fed.data_weights([3, 7, 11])),
    )
    for n in cohort:
        module, samples = by_hand.module(fed, n, state.models.get(n, sent)), fed.by_id[n].train
        anchor = vector_of(state.models.get(n, sent), fed.trained_names)
        for batch in by_hand.batches(fed, n, 2):
            loss = cross_entropy(module(by_hand.pixels(samples)[batch]), samples.labels[batch])
            if n != 12:
                weights = torch.cat([parameter.flatten() for parameter in module.parameters()])
                loss = loss - 0.3 * cosine_similarity(weights, anchor, dim=0)
            by_hand.descend(list(module.parameters()), loss, 0.1)
        assert by_hand.differ(report.after_local[n], dict(module.state_dict())) < 1e-12
    first = vector_of(start, fed.trained_names)
    moved = [vector_of(params, fed.trained_names) - first for params in report.after_local.values()]
    shares = torch.tensor([16.0, 17.0, 9.0], dtype=torch.float64) / 42
    rows = [shares + torch.stack([cosine_similarity(one, other, dim=0) for other in moved]) for one in moved]
    graph = torch.stack([nearest_distribution(row) for row in rows])  # 1 / (2 balance) is 1
    expected = dict(zip(cohort, mix(list(report.after_local.values()), graph), strict=True))
    assert toy.distance({n: after.models[n] for n in cohort}, expected) < 1e-12
    assert torch.allclose(report.coefficients[[0, 1, 3]][:, [0, 1, 3]], graph, rtol=0, atol=1e-12)


def test_a_row_solves_its_problem() -> None:
    """min sum_m c_m d_nm + alpha ||c - a||^2 on the simplex, by scipy."""
    fed = toy.alike(dtype="float64")
    trained, start = fed.train(fed.common_models(), 1), vector_of(fed.initial_model("linear"), fed.trained_names)
    graph, shares = PFedGraph(balance=0.8).graph(trained, fed), fed.data_weights(EVERYONE).numpy()
    moved = [vector_of(params, fed.trained_names) - start for params in trained.values()]
    for n, one in enumerate(moved):
        d = -np.array([float(cosine_similarity(one, other, dim=0)) for other in moved])
        found = minimize(
            lambda c, d=d: c @ d + 0.8 * ((c - shares) ** 2).sum(),
            shares,
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda c: c.sum() - 1},
            options={"ftol": 1e-14},
        )
        assert np.allclose(graph[n].numpy(), found.x, atol=1e-6)


def test_strong_coupling_is_fedavg_and_weak_coupling_is_local_training() -> None:
    """Without a pull; loosely, because one's own direction is the only one of cosine 1."""
    fed = toy.alike(dtype="float64")
    trained = fed.train(fed.common_models(), 1)
    hard, loose = (PFedGraph(balance=balance).graph(trained, fed) for balance in (1e9, 1e-6))
    assert torch.allclose(hard, fed.data_weights(EVERYONE).expand(5, 5), rtol=0, atol=1e-8)
    assert torch.equal(loose, torch.eye(5).double())


def test_a_client_uses_the_better_of_mixture_and_trained_model_by_validation() -> None:
    """Of equals the trained one, and without validation samples too; rounds start from mixtures whatever is used."""
    fed, method = toy.alike(training=LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)), PFedGraph()
    state, report = method.round(method.init(fed), [3, 7, 11, 12], 1, fed)
    good = {n: report.after_local[n] for n in (3, 7, 11, 12)}
    bad = {n: {name: -tensor for name, tensor in params.items()} for n, params in good.items()}  # the opposite answers
    right = {n: found.accuracy for n, found in fed.evaluate(good, "validation").items()}
    assert all(right[n] > found.accuracy for n, found in fed.evaluate(bad, "validation").items())
    mixed, trained = ({3: good[3], 7: bad[7], 11: good[11]}, {3: bad[3], 7: good[7], 11: dict(good[11])})
    made = PFedGraphState({**state.models, **mixed}, {**state.trained, **trained})
    used = method.personal(made, [3, 7, 11], fed)
    assert (used[3] is good[3], used[7] is good[7], used[11] is trained[11]) == (True, True, True)
    bare = [replace(client, validation=client.validation.take(torch.arange(0))) for client in fed.clients]
    assert method.personal(made, [3], toy.again(fed, clients=tuple(bare)))[3] is bad[3]
    for report_of, expected in (("before", mixed), ("after", trained)):
        assert toy.same(PFedGraph(report=report_of).personal(made, [3, 7, 11], fed), expected)
    assert toy.same(method.personal(state, [20], fed)[20], fed.average(state.models))
    (one, _), (other, _) = (
        PFedGraph(report=each).round(made, [3, 7], 2, toy.again(fed)) for each in ("before", "after")
    )
    assert toy.same(one, other)
