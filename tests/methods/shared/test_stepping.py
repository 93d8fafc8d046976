"""How far a client follows its teachers: which length it chooses, on whose evidence, and what it becomes."""

from dataclasses import replace

import pytest
import torch
import toy

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods.shared import stepping

Counts = list[tuple[float, float]]


def tally(*clients: Counts) -> torch.Tensor:
    """Return wins and losses of the four lengths, by client."""
    return torch.tensor(clients, dtype=torch.float64)


NOTHING: Counts = [(0, 0)] * 4


def trained_and_worse(fed: Federation) -> tuple[Models, Models]:
    """Return models that learned something, and the same turned about: they answer the opposite."""
    good = fed.train(fed.initial_models(), 1)
    return good, {n: {name: -tensor for name, tensor in params.items()} for n, params in good.items()}


class TestChoose:
    def test_the_most_wins_less_losses(self) -> None:
        assert stepping.choose(tally([(5, 0), (9, 1), (9, 2), (1, 0)]), 0.0) == [0.5]

    def test_the_shortest_of_equal_lengths(self) -> None:
        assert stepping.choose(tally([(3, 1), (9, 1), (9, 1), (10, 2)]), 0.0) == [0.5]

    def test_what_is_not_ahead_by_more_than_chance_is_not_taken(self) -> None:
        """Of m throws of a fair coin, wins less losses have the standard deviation √m: 4 of 16 is no more, 5 is."""
        assert stepping.choose(tally([(10, 6), (0, 0), (0, 0), (0, 9)]), 0.0) == [0.0]
        assert stepping.choose(tally([(10.5, 5.5), (0, 0), (0, 0), (0, 9)]), 0.0) == [0.25]
        assert stepping.choose(tally([(200, 190), *NOTHING[1:]], NOTHING), 0.0) == [0.0, 0.0]

    def test_who_knows_nothing_follows_everybody(self) -> None:
        assert stepping.choose(tally([(0, 0), (0, 0), (0, 0), (9, 0)], NOTHING), 0.5) == [1.0, 1.0]

    def test_pooling_outvotes_a_client_where_it_weighs_more(self) -> None:
        """Three losses of its own against the others' twenty wins, half and a tenth of which count."""
        found = tally([(0, 0), (0, 0), (0, 0), (0, 3)], [(0, 0), (0, 0), (0, 0), (20, 0)])
        assert stepping.choose(found, 0.0) == [0.0, 1.0]
        assert stepping.choose(found, 0.5) == [1.0, 1.0]
        assert stepping.choose(found, 0.1) == [0.0, 1.0]


class TestStep:
    def test_keeps_what_is_better_and_counts_it(self) -> None:
        fed = toy.federation(dtype="float64")
        good, bad = trained_and_worse(fed)
        models, found = stepping.step(good, bad, stepping.none_yet(fed), 0.25, fed)
        assert toy.same(models, good)
        at_ends = [
            [6 * evaluation.accuracy for evaluation in fed.evaluate(ends, "validation").values()]
            for ends in (bad, good)
        ]
        gains = (found[:, -1, 0] - found[:, -1, 1]).tolist()
        assert gains == pytest.approx([taught - own for taught, own in zip(*at_ends, strict=True)], abs=1e-12)
        assert (found <= 6).all()
        models, found = stepping.step(bad, good, stepping.none_yet(fed), 0.25, fed)
        assert not any(toy.same(models[n], bad[n]) for n in models)
        assert (found[:, -1, 0] - found[:, -1, 1]).tolist() == pytest.approx([-gain for gain in gains], abs=1e-12)

    def test_what_was_seen_before_counts(self) -> None:
        fed = toy.federation(dtype="float64")
        good, bad = trained_and_worse(fed)
        before = stepping.none_yet(fed)
        before[:, -1, 0] = 100.0
        models, found = stepping.step(good, bad, before, 0.0, fed)
        assert toy.same(models, bad)
        assert (found[:, -1, 0] >= 100.0).all()
        assert not before[..., 1].any()  # not written in place

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
        models, found = stepping.step(good, bad, stepping.none_yet(fed), 0.25, fed)
        assert toy.same(models, good)
        assert not found[0].any()
        assert found[1:].sum(dim=(1, 2)).all()

    def test_where_nobody_has_any_it_is_refused(self) -> None:
        fed = toy.federation()
        bare = tuple(replace(client, validation=client.validation.take(torch.arange(0))) for client in fed.clients)
        fed = toy.again(fed, clients=bare)
        with pytest.raises(InputError, match=r"none has any: raise partition\.validation_share, or take kt_pfl"):
            stepping.step(fed.initial_models(), fed.initial_models(), stepping.none_yet(fed), 0.25, fed)
