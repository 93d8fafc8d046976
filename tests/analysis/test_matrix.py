import pytest
import torch
from cases import case

from ktpfl_pipeline.analysis.matrix import attention, mixes, snapshots, trust
from ktpfl_pipeline.data.partition import label_similarity


def test_snapshots_are_spread_from_the_first_round_to_the_last() -> None:
    for rounds, chosen in ((1, [1]), (2, [1, 2]), (8, [1, 2, 3, 5, 8]), (30, [1, 2, 5, 13, 30]), (4, [1, 2, 3, 4])):
        with case(rounds):
            matrices = torch.arange(1.0, rounds + 1).view(-1, 1, 1).expand(rounds, 2, 2)
            taken = snapshots(matrices)
            assert list(taken) == chosen
            assert all(matrix == [[t, t], [t, t]] for t, matrix in taken.items())


def test_attention_by_hand() -> None:
    similarity = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.5], [0.1, 0.5, 1.0]])
    c = torch.tensor([[[0.5, 0.3, 0.2], [0.4, 0.2, 0.4], [0.1, 0.2, 0.7]], torch.eye(3).tolist()])
    found = attention(c, similarity)
    assert found["own"] == pytest.approx([(0.5 + 0.2 + 0.7) / 3, 1.0])
    assert found["alike"] == pytest.approx([(0.3 + 0.4) / 3, 0.0])  # 0.5 is not above 0.7
    assert found["others"] == pytest.approx([(0.2 + 0.4 + 0.1 + 0.2) / 3, 0.0])
    assert attention(c, similarity, adversaries=[0])["own"] == pytest.approx([(0.2 + 0.7) / 2, 1.0])


def test_what_is_no_mixture_is_told_from_one() -> None:
    c = torch.tensor([[[0.5, 0.3, 0.2], [0.4, 0.2, 0.4]]])
    assert mixes(c)
    assert not mixes(1.3 * c)
    assert not mixes(c + torch.tensor([0.6, -0.3, -0.3]))  # rows that sum to one, and entries below zero


def test_trust_by_hand() -> None:
    """Rows 0 and 2 are honest; what they give to client 1 is 0.3 and 0.2, and equal weights would give 1/3."""
    c = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.1, 0.2, 0.7]])
    assert trust(c, [1]) == pytest.approx(3 * 0.25)
    assert trust(torch.full((4, 4), 0.25), [0, 3]) == pytest.approx(1.0)
    assert trust(torch.eye(4), [2]) == 0.0


def test_clients_that_share_one_of_two_classes_are_others_whatever_their_counts() -> None:
    """Their similarity lies around 0.5; that of clients with the same two classes is near 1."""
    counts = torch.tensor([[50, 50, 0], [0, 55, 45], [0, 44, 60], [60, 45, 0]])
    weights = torch.full((1, 4, 4), 0.25)
    found = attention(weights, label_similarity(counts))
    assert found == {"own": [0.25], "alike": [0.25], "others": [0.5]}
