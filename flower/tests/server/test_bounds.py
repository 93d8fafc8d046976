"""Bounds on the numbers in clients' replies."""

import pytest
import torch

from ktpfl_flower.server.bounds import LARGEST, MODEL, USUAL, beyond, sizes

LOGITS = torch.tensor([[0.5, -3.0]])


def weights(*numbers):
    return {f"{place}": torch.tensor([0.0, number]) for place, number in enumerate(numbers)}


def of(model, predicted=LOGITS):
    return sizes("model", None, model, lambda params: predicted)


def test_the_largest_number_of_each_tensor_counts_whatever_its_sign():
    assert sizes("predictions", LOGITS, None, lambda params: LOGITS) == {("predictions", ""): 3.0}
    prototypes = torch.tensor([[-7.0, 1.0]]), torch.tensor([True])
    assert sizes("prototypes", prototypes, None, lambda params: LOGITS) == {("prototypes", ""): 7.0}
    model = {**weights(2.0, -0.5), "batches": torch.tensor(10**9)}
    assert of(model) == {("model", "0"): 2.0, ("model", "1"): 0.5, ("predictions", MODEL): 3.0}
    assert sizes("model", None, None, lambda params: LOGITS) == {}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_who_diverged_is_left_to_the_engine_but_not_a_model_that_only_predicts_nonsense(number):
    assert of(weights(number)) == {}
    assert list(beyond({0: of(weights(1.0), LOGITS * number), 1: of(weights(1.0))})) == [0]


@pytest.mark.parametrize("kind", LARGEST)
def test_one_client_alone_has_an_absolute_bound(kind):
    most = LARGEST[kind]
    assert beyond({3: {(kind, "x"): most}}) == {}
    assert f"beyond the bound of {most:.3g}" in beyond({3: {(kind, "x"): most * 1.01}})[3]


def test_others_bound_a_client_by_their_median():
    def found(*numbers):
        return list(beyond({n: {("model", "w"): number} for n, number in enumerate(numbers)}))

    assert found(0.1, 0.1, USUAL["model"]) == []
    assert found(0.1, 0.1, 1.01 * USUAL["model"]) == [2]
    assert found(5.0, 50.0) == []
    assert found(5.0, 51.0) == [1]
    assert found(5.0, 5.0, 1e5, 1e5) == [2, 3]  # two of four that agree do not make the median
    assert found(5.0, 1e-9, 1e-9) == []  # tiny numbers of others exclude nobody


def test_tensors_of_other_architectures_are_not_compared():
    assert beyond({0: {("model", "a"): 1.0}, 1: {("model", "b"): 1e5}}) == {}
