"""Classification by the nearest prototype: FedProto's and FedTGP's as in their papers, FedGH's if asked for."""

from dataclasses import replace
from typing import Any

import by_hand
import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core.client.features import with_prototypes
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.rounds.contract import check_methods
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedgh import FedGH
from ktpfl_pipeline.methods.fedproto import FedProto

EVERYONE = list(toy.IDS)
NEAREST = {"prediction": "nearest_prototype", "dimension": 8}


def logits(fed: Federation, n: int, params: Params, images: Tensor) -> Tensor:
    with torch.no_grad():
        return by_hand.module(fed, n, params).eval()(images)


class TestByHand:
    """Features of the linear model are 64 pixels, which are their own pooled features."""

    fed = toy.federation(1, architectures=("linear",), dtype="float64")

    def found(
        self, prototypes: Tensor, known: list[bool], images: Tensor, own: bool = False, fed: Federation = fed
    ) -> Tensor:
        params = fed.initial_model("linear")
        made = with_prototypes(Workspace(fed), 3, params, prototypes, torch.tensor(known), own).value
        return logits(fed, 3, made, images)

    def test_probabilities_are_of_squared_distances(self) -> None:
        """Distances 1, 4 and 9 from prototypes at pixels 0, 3 and 4 of an image whose first pixel is 1."""
        prototypes, image = torch.zeros(3, 64, dtype=torch.float64), torch.zeros(1, 1, 8, 8, dtype=torch.float64)
        image[0, 0, 0, 0] = 1.0
        prototypes[:, 0] = torch.tensor([0.0, 3.0, 4.0])
        found = self.found(prototypes, [True] * 3, image).softmax(dim=1)
        assert torch.allclose(found, torch.tensor([[-1.0, -4.0, -9.0]], dtype=torch.float64).softmax(dim=1), atol=1e-12)

    def test_a_class_without_prototype_is_never_the_nearest(self) -> None:
        prototypes = torch.randn(3, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        images = prototypes.view(3, 1, 8, 8)
        assert self.found(prototypes, [True] * 3, images).argmax(dim=1).tolist() == [0, 1, 2]
        assert self.found(prototypes, [True, False, True], images).argmax(dim=1)[[0, 2]].tolist() == [0, 2]
        assert 1 not in self.found(prototypes, [True, False, True], 100 * images).argmax(dim=1).tolist()

    def test_only_own_classes_count_if_so_set(self) -> None:
        prototypes = torch.randn(3, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        images, train = prototypes.view(3, 1, 8, 8), self.fed.by_id[3].train
        kept = train.take((train.labels != 2).nonzero()[:, 0])
        without = toy.again(self.fed, clients=(replace(self.fed.clients[0], train=kept),))
        assert self.found(prototypes, [True] * 3, images, own=True).argmax(dim=1).tolist() == [0, 1, 2]
        found = self.found(prototypes, [True] * 3, images, own=True, fed=without).argmax(dim=1).tolist()
        assert found[:2] == [0, 1]
        assert 2 not in found

    def test_without_any_prototype_the_own_head_decides(self) -> None:
        images = torch.rand(4, 1, 8, 8, dtype=torch.float64)
        found = self.found(torch.ones(3, 64, dtype=torch.float64), [False] * 3, images)
        assert torch.equal(found, logits(self.fed, 3, self.fed.initial_model("linear"), images))


def by_distance(fed: Federation, n: int, params: Params, prototypes: Tensor, known: Tensor) -> list[int]:
    """Return the classes of client n's test images by the nearest prototype of its pooled features."""
    images = by_hand.pixels(fed.by_id[n].test)
    with torch.no_grad():
        features = by_hand.pooled(by_hand.module(fed, n, params).eval()[:-1](images), prototypes.shape[1])
    distances = torch.cdist(features, prototypes.to(features)).masked_fill(~known, torch.inf)
    return distances.argmin(dim=1).tolist()


def classes(fed: Federation, n: int, params: Params) -> list[int]:
    return logits(fed, n, params, by_hand.pixels(fed.by_id[n].test)).argmax(dim=1).tolist()


@pytest.mark.parametrize("name", ["fedproto", "fedtgp", "fedgh"])
class TestMethods:
    def after_two(self, name: str, **given: Any) -> tuple[Method[Any], Any, Federation]:
        fed = toy.federation(dtype="float64")
        method = create(name, {**NEAREST, **({} if name == "fedproto" else {"steps": 5}), **given})
        state = method.init(fed)
        for t in (1, 2):
            state, _ = method.round(state, EVERYONE, t, fed)
        return method, state, fed

    def test_clients_use_the_nearest_prototype(self, name: str) -> None:
        method, state, fed = self.after_two(name)
        for n, params in method.personal(state, EVERYONE, fed).items():
            assert classes(fed, n, params) == by_distance(fed, n, state.models[n], state.prototypes, state.known)

    def test_the_head_decides_if_it_is_set(self, name: str) -> None:
        """Training does not depend on the setting."""
        method, state, fed = self.after_two(name, prediction="head")
        _, other, _ = self.after_two(name)
        assert toy.same(state, other)
        for n, params in method.personal(state, EVERYONE, fed).items():
            assert toy.same(params, state.models[n]) == (name != "fedgh")  # there it is the server's head

    def test_adaptation_trains_what_a_round_trains(self, name: str) -> None:
        """The extractor and a head, and then the nearest prototype decides again."""
        method, state, fed = self.after_two(name)
        now = method.personal(state, EVERYONE, fed)
        heads = replace(method, prediction="head")  # type: ignore[type-var]
        trained = heads.adapt(state, heads.personal(state, EVERYONE, fed), 2, fed)
        for n, params in method.adapt(state, now, 2, fed).items():
            assert classes(fed, n, params) == by_distance(fed, n, trained[n], state.prototypes, state.known)
            has_extractor = fed.by_id[n].architecture != "linear"
            assert (by_hand.differ(params, now[n]) > 1e-3) == has_extractor

    def test_new_clients_use_it_too(self, name: str) -> None:
        method, state, fed = self.after_two(name)
        joined = method.join(state, state.models, [7], fed).models
        start = fed.initial_models()[7]
        assert classes(fed, 7, joined[7]) == by_distance(fed, 7, start, state.prototypes, state.known)
        settled = method.settle(state, joined, 1, fed)[7]
        assert by_hand.differ(settled, joined[7]) > 1e-3


def test_defaults_are_those_of_the_papers() -> None:
    assert [create(name).prediction for name in ("fedproto", "fedtgp", "fedgh")] == [*["nearest_prototype"] * 2, "head"]


def test_fedgh_then_also_sends_prototypes() -> None:
    fed = toy.federation()
    found = []
    for prediction in ("head", "nearest_prototype"):
        method = FedGH(8, steps=2, prediction=prediction)  # type: ignore[arg-type]
        state, report = method.round(method.init(fed), [3], 1, fed)
        found.append((report.traffic[3], method.join(state, state.models, [7], fed).traffic[7]))
    plain, more = found
    assert plain == (Traffic(prototypes_up=96, parameters_down=108), Traffic(parameters_down=108))
    assert more == tuple(each + Traffic(prototypes_down=4 * 8 * 3) for each in plain)


def test_a_head_without_bias_fits_only_prediction_by_the_head() -> None:
    build = lambda name: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3, bias=False))  # noqa: E731
    fed = toy.federation(1, build=build)
    check_methods({"fedproto": FedProto(prediction="head")}, fed)
    with pytest.raises(InputError, match="its head 1 has no bias; prediction: head does not need this"):
        check_methods({"fedproto": FedProto()}, fed)
