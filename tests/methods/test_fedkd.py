"""FedKD: mentor and mentee on each other, and the mentee's updates as leading factors of an SVD."""

import by_hand
import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, softmax

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import wire_bytes
from ktpfl_pipeline.methods.fedkd import FedKD, decoded, encoded

EVERYONE = list(toy.IDS)


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """Return the mean over samples of KL(teacher ‖ student), of logits."""
    given = softmax(teacher, dim=1)
    return (given * (torch.log(given) - log_softmax(student, dim=1))).sum(dim=1).mean()


def low_rank(update: Tensor, energy: float) -> tuple[Tensor, int]:
    """Return the best approximation of the least rank whose share of energy exceeds `energy`, and its numbers."""
    matrix = update.flatten(1)
    u, s, v = torch.linalg.svd(matrix)
    for rank in range(1, len(s) + 1):
        if (s[:rank] ** 2).sum() > energy * (s**2).sum() or rank == len(s):
            break
    numbers = rank * (matrix.shape[0] + 1 + matrix.shape[1])
    if numbers >= matrix.numel():
        return update, update.numel()
    return (u[:, :rank] @ torch.diag(s[:rank]) @ v[:rank]).view_as(update), numbers


def shortened(update: dict[str, Tensor], energy: float) -> tuple[dict[str, Tensor], int]:
    parts = {name: low_rank(part, energy) if part.ndim > 1 else (part, part.numel()) for name, part in update.items()}
    return {name: part for name, (part, _) in parts.items()}, 4 * sum(numbers for _, numbers in parts.values())


@pytest.mark.parametrize("weights", [(None, 1.0), (0.6, 0.3)])
def test_rounds_equal_a_plain_implementation(weights: tuple[float | None, float]) -> None:
    """In the third round client 12 was absent in the one before, and is sent the whole mentee."""
    fed = toy.federation(architectures=("linear", "conv"), dtype="float64", rounds=3)
    method = FedKD("linear", 6, 0.5, 0.8, *weights)
    state = method.init(fed)
    models = {n: by_hand.module(fed, n, params) for n, params in state.models.items()}
    maps = {n: torch.eye(6, dtype=torch.float64, requires_grad=True) for n in EVERYONE}
    common, news = dict(state.common), 0
    for t, cohort in ((1, EVERYONE), (2, [3, 7]), (3, [3, 12])):
        state, report = method.round(state, cohort, t, fed)
        energy, updates = 0.5 + 0.3 * t / 3, []
        for n in cohort:
            mentee = toy.build("linear").double()
            mentee.load_state_dict(common)
            one_client(fed, n, t, models[n], mentee, maps[n], method)
            update = {name: value - common[name] for name, value in mentee.state_dict().items()}
            sent, up = shortened(update, energy)
            updates.append((len(fed.by_id[n].train), sent))
            assert report.traffic[n].parameters_up == up
            assert report.traffic[n].parameters_down == (news if n in (3, 7) and t > 1 else 4 * 195)
        size = sum(weight for weight, _ in updates)
        mean = {name: sum(weight * sent[name] for weight, sent in updates) / size for name in common}
        applied, news = shortened(mean, energy)
        common = {name: value + applied[name] for name, value in common.items()}
        assert by_hand.differ(state.common, common) < 1e-12
        for n in EVERYONE:
            assert by_hand.differ(state.models[n], models[n].state_dict()) < 1e-12
            assert torch.allclose(state.maps[n]["weight"], maps[n], rtol=0, atol=1e-12)
    assert news < 4 * 195


def test_after_an_empty_round_the_last_update_is_enough() -> None:
    """The mentee did not move in it; before the first update nobody has it."""
    fed, method = toy.federation(architectures=("linear", "conv"), rounds=4), FedKD("linear", 6, 0.5, 0.8)
    after, first = method.round(method.init(fed), [3, 7], 2, fed)
    _, report = method.round(after, [3, 12], 4, fed)
    assert {n: first.traffic[n].parameters_down for n in (3, 7)} == {3: 4 * 195, 7: 4 * 195}
    assert {n: report.traffic[n].parameters_down for n in (3, 12)} == {3: int(after.news), 12: 4 * 195}
    assert int(after.news) < 4 * 195


def one_client(
    fed: Federation, n: int, t: int, mentor: nn.Module, mentee: nn.Module, between: Tensor, method: FedKD
) -> None:
    """Train the three in place, each on a loss of its own; without a weight the KL is a mean over the 3 classes."""
    divergence = 1 / 3 if method.divergence_weight is None else method.divergence_weight
    samples = fed.by_id[n].train
    for batch in by_hand.batches(fed, n, t):
        images, labels = by_hand.pixels(samples)[batch], samples.labels[batch]
        large, small = mentor[:-1](images), mentee[:-1](images)
        mine, theirs = mentor[-1](large), mentee[-1](small)
        fits = cross_entropy(mine, labels), cross_entropy(theirs, labels)
        both = (fits[0] + fits[1]).item()
        hidden = (by_hand.pooled(large, 6) - by_hand.pooled(small, 6) @ between.T).square().mean()
        hidden = method.feature_weight * hidden
        losses = (
            ([*mentor.parameters()], fits[0] + (divergence * kl(theirs.detach(), mine) + hidden) / both),
            ([*mentee.parameters()], fits[1] + (divergence * kl(mine.detach(), theirs) + hidden) / both),
            ([between], hidden / both),
        )
        gradients = [torch.autograd.grad(loss, own, retain_graph=True) for own, loss in losses]
        with torch.no_grad():
            for (own, _), found in zip(losses, gradients, strict=True):
                for parameter, gradient in zip(own, found, strict=True):
                    parameter.sub_(0.1 * gradient)


class TestEncoding:
    def test_a_matrix_of_rank_one_is_two_vectors_and_a_number(self) -> None:
        update = {"w": torch.outer(torch.arange(1.0, 9.0), torch.arange(1.0, 6.0)), "b": torch.arange(3.0)}
        sent = encoded(update, 0.9)
        assert wire_bytes(sent) == 4 * (8 + 1 + 5 + 3)
        assert all(torch.allclose(value, update[name], atol=1e-4) for name, value in decoded(sent, update).items())

    @pytest.mark.parametrize("energy", [0.3, 0.5, 0.99])
    def test_the_loss_is_at_most_the_remaining_energy(self, energy: float) -> None:
        update = {"w": torch.randn(40, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}
        found = decoded(encoded(update, energy), update)["w"]
        lost = (found - update["w"]).square().sum() / update["w"].square().sum()
        assert lost < 1 - energy
        assert (lost > 0) == (energy < 0.95)  # more factors than numbers: it is sent as it is

    def test_all_energy_is_the_update_itself(self) -> None:
        update = {"w": torch.randn(5, 4), "zeros": torch.zeros(50, 50)}
        sent = encoded(update, 1.0)
        assert sent["w"] is update["w"]
        assert torch.equal(decoded(sent, update)["zeros"], update["zeros"])


def test_a_mentee_of_the_own_weights_is_twice_the_same_student() -> None:
    """Equal models without dropout and W^h = 1: nothing to learn from each other but the labels."""
    fed = toy.federation(1, architectures=("linear",), dtype="float64")
    state, report = FedKD(dimension=64, end=1.0, start=1.0).round(FedKD(dimension=64).init(fed), [3], 1, fed)
    alone = fed.train(fed.initial_models(), 1)
    assert toy.distance(report.after_local, alone) < 1e-13
    assert by_hand.differ(state.common, alone[3]) < 1e-13
    assert torch.equal(state.maps[3]["weight"], torch.eye(64, dtype=torch.float64))
