"""How far a client follows its teachers: which length it chooses, on whose evidence, and what it becomes."""

from dataclasses import replace

import pytest
import torch
import toy

from ktpfl_pipeline.core import stepping
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Models

ALL = torch.tensor([[0.0, 1.0, 2.0, 3.0, 9.0]], dtype=torch.float64)


def trained_and_worse(fed: Federation) -> tuple[Models, Models]:
    """Return models that learned something, and the same turned about: they answer the opposite."""
    good = fed.train(fed.initial_models(), 1)
    return good, {n: {name: -tensor for name, tensor in params.items()} for n, params in good.items()}


class TestChoose:
    def test_the_most_hits_of_all_rounds(self) -> None:
        assert stepping.choose(torch.tensor([[0.0, 5.0, 4.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 2.0]]), 0.0) == [1, 4]

    def test_the_shortest_of_equal_lengths(self) -> None:
        assert stepping.choose(torch.tensor([[3.0, 7.0, 7.0, 7.0, 6.0], [0.0, 0.0, 0.0, 0.0, 0.0]]), 0.0) == [1, 0]

    def test_who_knows_nothing_follows_everybody(self) -> None:
        assert stepping.choose(torch.cat([ALL, torch.zeros_like(ALL)]), 0.25) == [4, 4]

    def test_pooling_outvotes_a_client_where_it_weighs_more(self) -> None:
        """Two hits against 0.25 times the others' seven, and 0.5 times."""
        hits = torch.cat([torch.tensor([[2.0, 0.0, 0.0, 0.0, 0.0]]), ALL - torch.tensor([[2.0, 1.0, 0.0, 0.0, 0.0]])])
        assert stepping.choose(hits, 0.0)[0] == 0
        assert stepping.choose(hits, 0.25)[0] == 4
        assert stepping.choose(hits, 0.1)[0] == 0

    def test_rounding_of_sums_makes_no_choice(self) -> None:
        hits = torch.full((10, 5), 0.1).double()
        hits[0, 3] += 1e-14
        assert stepping.choose(hits, 0.1) == [0] * 10


class TestStep:
    def test_keeps_what_is_better_and_counts_it(self) -> None:
        fed = toy.federation(dtype="float64")
        good, bad = trained_and_worse(fed)
        models, hits = stepping.step(good, bad, stepping.none_yet(fed), 0.25, fed)
        assert toy.same(models, good)
        at_ends = [
            [round(6 * evaluation.accuracy) for evaluation in fed.evaluate(found, "validation").values()]
            for found in (good, bad)
        ]
        assert hits[:, [0, -1]].T.tolist() == at_ends
        models, _ = stepping.step(bad, good, stepping.none_yet(fed), 0.25, fed)
        assert not any(toy.same(models[n], bad[n]) for n in models)

    def test_what_was_seen_before_counts(self) -> None:
        fed = toy.federation(dtype="float64")
        good, bad = trained_and_worse(fed)
        before = torch.zeros(5, 5, dtype=torch.float64)
        before[:, 4] = 100.0
        models, hits = stepping.step(good, bad, before, 0.0, fed)
        assert toy.same(models, bad)
        assert (hits[:, 4] >= 100.0).all()
        assert torch.equal(before[:, 0], torch.zeros(5, dtype=torch.float64))  # not written in place

    def test_between_is_on_the_line(self) -> None:
        fed = toy.federation(dtype="float64", architectures=("conv",))
        good, bad = trained_and_worse(fed)
        quarter = stepping.between(good[3], bad[3], 0.25)
        for name, tensor in quarter.items():
            if tensor.is_floating_point():
                assert torch.allclose(tensor, 0.75 * good[3][name] + 0.25 * bad[3][name], rtol=0, atol=1e-14)
        assert stepping.between(good[3], bad[3], 0.0) is good[3]
        assert stepping.between(good[3], bad[3], 1.0) is bad[3]

    def test_a_client_without_validation_samples_has_no_vote(self) -> None:
        fed = toy.federation(dtype="float64")
        first = replace(fed.clients[0], validation=fed.clients[0].validation.take(torch.arange(0)))
        fed = toy.again(fed, clients=(first, *fed.clients[1:]))
        good, bad = trained_and_worse(fed)
        models, hits = stepping.step(good, bad, stepping.none_yet(fed), 0.25, fed)
        assert toy.same(models, good)
        assert not hits[0].any()
        assert hits[1:, 0].all()

    def test_where_nobody_has_any_it_is_refused(self) -> None:
        fed = toy.federation()
        bare = tuple(replace(client, validation=client.validation.take(torch.arange(0))) for client in fed.clients)
        fed = toy.again(fed, clients=bare)
        with pytest.raises(InputError, match=r"none has any: raise partition\.validation_share, or take kt_pfl"):
            stepping.step(fed.initial_models(), fed.initial_models(), stepping.none_yet(fed), 0.25, fed)
