"""What a client that was never in a cohort uses: what the server would send it today."""

import pytest
import torch
import toy

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Models, mix
from ktpfl_pipeline.methods import create

COHORT, NEVER = [3, 11], [7, 12, 20]


def two_rounds(name: str, fed: Federation) -> tuple[object, Models, Models]:
    """Return the state after two rounds of a part of the clients, and all clients' models before and after them."""
    method = create(name)
    state = start = method.init(fed)
    for t in (1, 2):
        state, _ = method.round(state, COHORT, t, fed)
    return state, method.personal(start, toy.IDS, fed), method.personal(state, toy.IDS, fed)


@pytest.mark.parametrize("name", ["local", "fedamp", "heur_fedamp", "kt_pfl", "fedmd"])
def test_the_initial_model_where_the_server_has_no_other(name: str) -> None:
    fed = toy.alike("both", dtype="float64")
    _, before, after = two_rounds(name, fed)
    assert toy.same(before, fed.initial_models())
    assert all(toy.same(after[n], before[n]) for n in NEVER)
    assert not any(toy.same(after[n], before[n]) for n in COHORT)


@pytest.mark.parametrize("name", ["pfedme", "ditto"])
def test_the_common_model(name: str) -> None:
    """And not random weights; who took part has its own."""
    fed = toy.alike("both", dtype="float64")
    state, before, after = two_rounds(name, fed)
    common = state.common
    assert toy.same(before, fed.initial_models())
    assert all(toy.same(after[n], common) for n in NEVER)
    assert not any(toy.same(after[n], common) for n in COHORT)
    assert not toy.same(common, before[7])


def test_the_common_body_with_the_initial_head() -> None:
    fed = toy.alike("mlp")
    state, before, after = two_rounds("fedrep", fed)
    for n in NEVER:
        assert torch.equal(after[n]["4.weight"], before[n]["4.weight"])
        assert torch.equal(after[n]["1.weight"], state.common["1.weight"])
        assert not torch.equal(after[n]["1.weight"], before[n]["1.weight"])


def test_of_cores_the_mixture_by_the_shares_of_data() -> None:
    """APPLE, whose relations of a client that never took part are its prior."""
    fed = toy.alike("both", dtype="float64")
    state, _, after = two_rounds("apple", fed)
    expected = mix(list(state.cores.values()), fed.data_weights(list(toy.IDS))[None])[0]
    assert toy.distance({n: after[n] for n in NEVER}, dict.fromkeys(NEVER, expected)) < 1e-14


def test_of_parameters_the_mixture_by_its_row_of_the_matrix() -> None:
    """KT-pFL, whose row of a client that never took part is uniform."""
    fed = toy.alike("both", dtype="float64")
    state, _, after = two_rounds("kt_pfl_params", fed)
    expected = mix([state.models[n] for n in COHORT], torch.tensor([[0.5, 0.5]], dtype=torch.float64))[0]
    assert toy.distance({n: after[n] for n in NEVER}, dict.fromkeys(NEVER, expected)) < 1e-14


def test_of_candidates_the_first_move() -> None:
    """FedFomo: what the client would start its first training from, of the models of those that took part."""
    fed = toy.alike("linear", dtype="float64")
    state, before, after = two_rounds("fedfomo", fed)
    moves = create("fedfomo").moves(state, NEVER, 0, fed)
    assert all(set(move.chosen) <= set(COHORT) for move in moves.values())
    assert toy.same({n: after[n] for n in NEVER}, {n: move.model for n, move in moves.items()})
    assert any(move.weights is not None for move in moves.values())
    assert not toy.same(after, before)


@pytest.mark.parametrize("name", ["pfedme", "ditto", "apple", "kt_pfl_params", "fedfomo", "fedamp"])
def test_being_judged_changes_no_training(name: str) -> None:
    """A first participation is the same whether or not somebody asked for the client's model before."""
    fed, method = toy.alike("both"), create(name)
    state, _ = method.round(method.init(fed), COHORT, 1, fed)
    one, _ = method.round(state, NEVER, 2, fed)
    method.personal(state, toy.IDS, fed)
    other, _ = method.round(state, NEVER, 2, fed)
    assert toy.same(one, other)
