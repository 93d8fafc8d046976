"""FedRE: one mixture of class means a client, a label of the same mixture, and a head trained on both."""

from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import linear, log_softmax, softmax

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fedre import FedRE, entangled

EVERYONE = list(toy.IDS)


def test_a_mixture_is_of_class_means_and_of_their_labels() -> None:
    """Features of the linear model are the pixels; client 3 has classes 0 and 2 alone."""
    fed = toy.federation(architectures=("linear",), dtype="float64")
    train = fed.by_id[3].train
    fed = toy.again(fed, clients=(replace(fed.clients[0], train=train.take((train.labels != 1).nonzero()[:, 0])),))
    images, labels = by_hand.pixels(fed.by_id[3].train).flatten(1), fed.by_id[3].train.labels
    drawn = [torch.rand(3, generator=fed.stream("entanglement", t, 3), dtype=torch.float64) for t in (1, 2)]
    for t in (1, 2):
        mixture, label = entangled(Workspace(fed), 3, fed.initial_model("linear"), 64, t).value
        share = float(drawn[t - 1][0] / (drawn[t - 1][0] + drawn[t - 1][2]))
        assert label.tolist() == pytest.approx([share, 0, 1 - share])
        expected = share * images[labels == 0].mean(dim=0) + (1 - share) * images[labels == 2].mean(dim=0)
        assert torch.allclose(mixture, expected, rtol=0, atol=1e-12)
    assert not torch.equal(*drawn)


def test_the_server_trains_as_a_plain_implementation() -> None:
    """Two passes over three mixtures in mini-batches of two (the third joins them), on sums of weighted losses."""
    fed, cohort = toy.federation(architectures=("linear",), dtype="float64"), [3, 7, 12]
    method = FedRE(8, rate=0.3, epochs=2, batch=2)
    state = method.init(fed)
    after, report = method.round(state, cohort, 1, fed)
    found = [entangled(Workspace(fed), n, report.after_local[n], 8, 1).value for n in cohort]
    weight, bias = state.head["weight"], state.head["bias"]
    for _ in range(2):
        slope, offset = torch.zeros_like(weight), torch.zeros_like(bias)
        for mixture, label in found:
            error = softmax(linear(mixture, weight, bias), dim=0) - label  # of Σ_k v_k CE(k), where Σ v = 1
            slope, offset = slope + error[:, None] * mixture, offset + error
        weight, bias = weight - 0.3 * slope, bias - 0.3 * offset
    assert torch.allclose(after.head["weight"], weight, rtol=0, atol=1e-12)
    assert torch.allclose(after.head["bias"], bias, rtol=0, atol=1e-12)
    assert by_hand.differ(after.head, state.head) > 1e-2


def test_local_training_is_that_of_fedgh() -> None:
    """From the server's head, with which a client is evaluated after transfer."""
    fed, method = toy.federation(dtype="float64"), FedRE(8)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(state, [7], 2, fed)
    extractor, weight, bias = by_hand.train_with_head(fed, 7, 2, state.models[7], state.head, 8)
    images = by_hand.pixels(fed.by_id[7].test)
    feature = by_hand.pooled(extractor.eval()(images), 8)
    for params, head in (
        (report.after_local[7], (weight, bias)),
        (method.personal(after, [7], fed)[7], after.head.values()),
    ):
        found = by_hand.module(fed, 7, params).eval()(images)
        assert torch.allclose(log_softmax(found, dim=1), log_softmax(linear(feature, *head), dim=1), rtol=0, atol=1e-12)


def test_traffic() -> None:
    """A mixture of F numbers and a label of K up, a head down, however many classes a client has."""
    fed = toy.federation()
    _, report = FedRE(8).round(FedRE(8).init(fed), [3, 20], 1, fed)
    assert report.traffic == dict.fromkeys([3, 20], Traffic(prototypes_up=4 * (8 + 3), parameters_down=4 * (8 * 3 + 3)))
