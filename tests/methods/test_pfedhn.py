"""pFedHN: the server's step is the gradient through the hypernetwork, one client after another."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import vector_of, with_vector
from ktpfl_pipeline.methods import pfedhn
from ktpfl_pipeline.methods.pfedhn import PFedHN, PFedHNState

EVERYONE = list(toy.IDS)
ONE_STEP = LocalTraining(epochs=1, batch_size=100, learning_rate=0.1)
STILL = LocalTraining(epochs=0)


def plain(**changes: Any) -> PFedHN:
    """Return the method with the server's plainest SGD."""
    return PFedHN(**{"hidden": 6, "layers": 2, "rate": 1.0, "momentum": 0.0, "decay": 0.0, "clip": 1e9, **changes})


def lively(method: PFedHN, fed: Federation) -> PFedHNState:
    """Return a state whose last layer hears the embeddings, so that gradients reach every weight."""
    state = method.init(fed)
    head = state.weights["head.weight"]
    noise = torch.randn(head.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return replace(state, weights={**state.weights, "head.weight": (0.1 * noise).to(head)})


class TestServerStep:
    @pytest.mark.parametrize("n", EVERYONE)
    def test_of_one_inner_step_is_the_gradient_through_the_hypernetwork(self, n: int) -> None:
        """eta times that of the loss of h(v; phi) with respect to phi and v, by autograd from end to end."""
        fed, method = toy.alike(dtype="float64", training=ONE_STEP), plain()
        state = lively(method, fed)
        after, _ = method.round(state, [n], 1, fed)
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in state.weights.items()}
        row = EVERYONE.index(n)
        v = state.embeddings[row].clone().requires_grad_()
        theta = pfedhn.generate(leaves, v)
        params = with_vector(fed.initial_model("linear"), fed.trained_names, theta)
        samples = fed.by_id[n].train
        logits = functional_call(toy.build("linear").double(), params, (samples.inputs.double() / 127.5 - 1.0,))
        cross_entropy(logits, samples.labels).backward()
        for name, leaf in leaves.items():
            assert torch.allclose(state.weights[name] - after.weights[name], 0.1 * leaf.grad, rtol=0, atol=1e-14)
        assert torch.allclose(state.embeddings[row] - after.embeddings[row], 0.1 * v.grad, rtol=0, atol=1e-14)
        assert float(v.grad.norm()) > 1e-4

    def test_no_change_no_update(self) -> None:
        """Bit for bit, without decay and momentum."""
        fed = toy.alike(training=STILL)
        state = lively(plain(), fed)
        after, _ = plain(momentum=0.9).round(state, EVERYONE, 1, fed)
        assert toy.same(after, state)

    def test_decay_is_of_the_network_and_not_of_embeddings(self) -> None:
        fed = toy.alike(dtype="float64", training=STILL)
        state = lively(plain(), fed)
        after, _ = plain(rate=0.1, decay=0.5).round(state, [7], 1, fed)
        assert torch.equal(after.embeddings, state.embeddings)
        for name, tensor in state.weights.items():
            assert torch.allclose(after.weights[name], (1 - 0.1 * 0.5) * tensor, rtol=0, atol=1e-15)

    def test_momentum_goes_on_where_nothing_changes(self) -> None:
        fed = toy.alike(dtype="float64", training=ONE_STEP)
        still, method = toy.again(fed, training=STILL), plain(rate=0.1, momentum=0.5)
        state = lively(method, fed)
        moved, _ = method.round(state, [7], 1, fed)
        after, _ = method.round(moved, [7], 2, still)
        for name in state.weights:
            step = moved.weights[name] - state.weights[name]
            assert torch.allclose(after.weights[name] - moved.weights[name], 0.5 * step, rtol=0, atol=1e-14)
        assert torch.allclose(
            after.embeddings[1] - moved.embeddings[1],
            0.5 * (moved.embeddings[1] - state.embeddings[1]),
            rtol=0,
            atol=1e-14,
        )

    def test_a_long_gradient_is_clipped(self) -> None:
        fed = toy.alike(dtype="float64", training=ONE_STEP)
        state = lively(plain(), fed)
        free, clipped = (plain(clip=clip).round(state, [7], 1, fed)[0] for clip in (1e9, 1e-3))
        assert norm(state, free) > 0.05
        assert norm(state, clipped) == pytest.approx(1e-3, rel=1e-2)


def norm(one: PFedHNState, other: PFedHNState) -> float:
    parts = [(one.weights[name] - other.weights[name]).flatten() for name in one.weights]
    return float(torch.cat([*parts, (one.embeddings - other.embeddings).flatten()]).norm())


class TestRound:
    def test_starts_where_all_others_do(self) -> None:
        fed, method = toy.alike("both"), PFedHN()
        assert toy.same(method.personal(method.init(fed), EVERYONE, fed), fed.initial_models())

    def test_embeddings_of_absent_clients_do_not_move(self) -> None:
        """Nor their momentum, although that of others does."""
        fed, method = toy.alike("both"), PFedHN()
        before, _ = method.round(lively(method, fed), EVERYONE, 1, fed)
        after, _ = method.round(before, [7, 20], 2, fed)
        for field in ("embeddings", "embedding_velocity"):
            old, new = getattr(before, field), getattr(after, field)
            assert torch.equal(old[[0, 2, 3]], new[[0, 2, 3]])
            assert (old[[1, 4]] != new[[1, 4]]).any(dim=1).all()

    def test_the_server_steps_after_each_client(self) -> None:
        """A round of two is a round of one and then a round of the other, in an order drawn for the round."""
        fed, method = toy.alike("both"), PFedHN()
        state = lively(method, fed)
        orders = []
        for t in range(1, 9):
            both, _ = method.round(state, [3, 7], t, fed)
            chains = []
            for first, second in ((3, 7), (7, 3)):
                between, _ = method.round(state, [first], t, fed)
                chains.append(method.round(between, [second], t, fed)[0])
            matches = [toy.same(both, chain) for chain in chains]
            assert matches.count(True) == 1
            orders.append(matches[0])
        assert len(set(orders)) == 2

    def test_the_model_of_a_client_is_made_and_not_trained(self) -> None:
        fed, method = toy.alike("both"), PFedHN()
        after, report = method.round(lively(method, fed), EVERYONE, 1, fed)
        found = method.personal(after, [20, 3], fed)
        assert list(found) == [20, 3]
        for n, row in ((20, 4), (3, 0)):
            theta: Tensor = pfedhn.generate(after.weights, after.embeddings[row])
            assert torch.equal(vector_of(found[n], fed.trained_names), theta)
            assert torch.equal(found[n]["1.running_mean"], report.after_local[n]["1.running_mean"])
            assert not torch.equal(vector_of(report.after_local[n], fed.trained_names), theta)

    @pytest.mark.parametrize(("clients", "size"), [(1, 1), (3, 1), (4, 2), (5, 2)])
    def test_embeddings_grow_with_the_clients(self, clients: int, size: int) -> None:
        assert PFedHN().init(toy.alike(clients=clients)).embeddings.shape == (clients, size)
