"""FedAPEN: an own and a shared model that predict together, and how much each of them counts."""

from dataclasses import replace
from functools import partial

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from ktpfl_pipeline.core import joint
from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods.fedapen import FedAPEN, FedAPENState, learned_share
from ktpfl_pipeline.methods.shared import mutual

EVERYONE = list(toy.IDS)
METHOD = FedAPEN("conv", mutual=0.7, rate=0.5, epochs=3)


def federation(**settings: object) -> Federation:
    return toy.federation(architectures=("linear", "conv"), dtype="float64", **settings)


def trained(
    fed: Federation, own: Params, common: Params, t: int, shares: dict[int, float], n: int = 3
) -> tuple[Params, Params]:
    return mutual.train_pair(Workspace(fed), n, own, common, t, "conv", partial(METHOD.loss, shares)).value


def test_an_ensemble_is_the_weighted_mean_of_both_logits() -> None:
    fed, images = federation(), by_hand.pixels(toy.samples(5, 1))
    own, common = fed.initial_model("linear"), fed.initial_model("conv")
    found = Workspace(fed).module(3, joint.ensemble(own, common, "conv", 0.3)).eval()(images)
    one, other = (by_hand.module(fed, n, params).eval()(images) for n, params in ((3, own), (7, common)))
    assert torch.allclose(found, 0.3 * one + 0.7 * other, rtol=0, atol=1e-12)


def test_training_is_that_of_a_plain_implementation() -> None:
    """Each model learns from labels, from the other's probabilities, and from the labels as part of the ensemble."""
    fed = federation()
    mine, theirs = (
        by_hand.module(fed, 3, fed.initial_model("linear")),
        by_hand.module(fed, 7, fed.initial_model("conv")),
    )
    train, share = fed.by_id[3].train, 0.3
    for batch in by_hand.batches(fed, 3, 1):
        images, labels = by_hand.pixels(train)[batch], train.labels[batch]
        logits = mine(images), theirs(images)
        for module, own, other, weight in ((mine, *logits, share), (theirs, *logits[::-1], 1 - share)):
            fixed = other.detach()
            gap = kl_div(log_softmax(own, dim=1), softmax(fixed, dim=1), reduction="batchmean")
            both = cross_entropy(weight * own + (1 - weight) * fixed, labels)
            by_hand.descend([*module.parameters()], cross_entropy(own, labels) + 0.7 * gap + both, 0.1)
    own, copy = trained(fed, fed.initial_model("linear"), fed.initial_model("conv"), 1, {3: share})
    assert by_hand.differ(own, mine.state_dict()) < 1e-12
    assert by_hand.differ(copy, theirs.state_dict()) < 1e-12


class TestShare:
    def learned(self, fed: Federation, share: float, method: FedAPEN = METHOD) -> float:
        own, common = fed.initial_model("linear"), fed.initial_model("conv")
        return float(learned_share(Workspace(fed), 3, own, common, share, method, "conv", 2).value)

    def test_by_hand(self) -> None:
        """Six validation images in batches of four and two, three times."""
        fed = federation()
        fed = toy.again(fed, training=replace(fed.training, batch_size=4))
        samples, found = fed.by_id[3].validation, 0.4
        with torch.no_grad():
            images = by_hand.pixels(samples)
            mine = by_hand.module(fed, 3, fed.initial_model("linear")).eval()(images)
            theirs = by_hand.module(fed, 7, fed.initial_model("conv")).eval()(images)
        shuffle = fed.stream("ensemble", 2, 3)
        for _ in range(3):
            for batch in sgd.batches(6, 4, shuffle):
                share = torch.tensor(found, dtype=torch.float64, requires_grad=True)
                loss = cross_entropy(share * mine[batch] + (1 - share) * theirs[batch], samples.labels[batch])
                found -= 0.05 * float(torch.autograd.grad(loss, share)[0])
        assert self.learned(fed, 0.4, replace(METHOD, rate=0.05)) == pytest.approx(found, abs=1e-12)
        assert abs(found - 0.4) > 1e-3

    @pytest.mark.parametrize("right", ["own", "common"])
    def test_goes_to_the_model_that_is_right_and_stays_a_share(self, right: str) -> None:
        fed = federation()
        n = {"own": 3, "common": 7}[right]
        images = fed.by_id[3].validation.inputs
        with torch.no_grad():
            architecture = fed.by_id[n].architecture
            said = by_hand.module(fed, n, fed.initial_model(architecture)).eval()(images.double() / 127.5 - 1)
        client = replace(fed.clients[0], validation=LabeledDataset(images, said.argmax(dim=1)))
        fed = toy.again(fed, clients=(client, *fed.clients[1:]))
        assert self.learned(fed, 0.5, FedAPEN("conv", rate=100.0, epochs=50)) == {"own": 1.0, "common": 0.0}[right]


def test_a_round_averages_copies_and_learns_shares_with_the_average() -> None:
    fed, cohort = federation(), [3, 7, 12]
    before = FedAPENState(fed.initial_models(), fed.initial_model("conv"), {3: 0.9})
    after, report = METHOD.round(before, cohort, 2, fed)
    space, copies = Workspace(fed), {}
    for n in cohort:
        share = 0.9 if n == 3 else 0.5
        own, copies[n] = trained(fed, before.models[n], before.common, 2, before.shares, n)
        assert toy.same(after.models[n], own)
        assert toy.same(report.after_local[n], joint.ensemble(own, copies[n], "conv", share))
    assert toy.same(after.common, fed.average(copies))
    for n in cohort:
        share = 0.9 if n == 3 else 0.5
        found = learned_share(space, n, after.models[n], after.common, share, METHOD, "conv", 2).value
        assert after.shares[n] == float(found)
        expected = joint.ensemble(after.models[n], after.common, "conv", after.shares[n])
        assert toy.same(METHOD.personal(after, [n], fed)[n], expected)
    assert set(after.shares) == set(cohort)
    assert report.metrics["own_share"] == pytest.approx(sum(after.shares.values()) / 3)


def test_the_shared_model_travels() -> None:
    """Four bytes a number of the conv model, BatchNorm's statistics among them; new clients get it too."""
    fed = federation()
    state, report = METHOD.round(METHOD.init(fed), [3, 20], 1, fed)
    size = 4 * ((4 * 9 + 4) + 4 * 4 + (36 * 3 + 3))
    assert report.traffic == dict.fromkeys([3, 20], Traffic(parameters_up=size, parameters_down=size))
    joined = METHOD.join(state, state.models, [7], fed)
    assert joined.traffic == {7: Traffic(parameters_down=size)}
    assert toy.same(joined.models[7], joint.ensemble(fed.initial_models()[7], state.common, "conv", 0.5))
