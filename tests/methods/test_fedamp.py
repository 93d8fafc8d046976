"""FedAMP and HeurFedAMP: the mixture by hand and as a gradient step, the local pull, and whose models are mixed."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import PersonalState
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Models, mix, vector_of
from ktpfl_pipeline.methods.fedamp import FedAMP, HeurFedAMP
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
STILL = LocalTraining(epochs=0)  # clients return what they were sent


def scattered(fed: Federation, spread: float = 0.1) -> Models:
    """Return models around the initial one, so that everybody differs."""
    models = {}
    for n, params in fed.initial_models().items():
        stream = torch.Generator().manual_seed(n)
        models[n] = {
            name: tensor + spread * torch.randn(tensor.shape, generator=stream, dtype=tensor.dtype)
            for name, tensor in params.items()
        }
    return models


def all_seen(models: Models) -> PersonalState:
    return PersonalState(models)


def points(*values: tuple[float, ...]) -> list[dict[str, Tensor]]:
    return [{"w": torch.tensor(value, dtype=torch.float64)} for value in values]


def mixture(method: FedAMP, models: list[dict[str, Tensor]]) -> Tensor:
    fed = toy.alike()
    fed.__dict__["trained_names"] = ["w"]
    return method.mixture(models, fed)


class TestMixture:
    def test_by_hand(self) -> None:
        """Points 0, 1 and 3: squared distances 1, 9, 4, median 4; the middle one has most similar peers."""
        xi = mixture(FedAMP(attention=0.5), points((0.0,), (1.0,), (3.0,)))
        near, far, middle = math.exp(-1 / 4), math.exp(-9 / 4), math.exp(-4 / 4)
        scale = 0.5 / (near + middle)
        expected = [
            [1 - scale * (near + far), scale * near, scale * far],
            [scale * near, 0.5, scale * middle],
            [scale * far, scale * middle, 1 - scale * (far + middle)],
        ]
        assert torch.allclose(xi, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)

    def test_the_median_of_an_even_number_of_distances_is_the_mean_of_the_middle_two(self) -> None:
        """Points 0, 1, 3 and 7: squared distances 1, 4, 9, 16, 36, 49, median 12.5; the lower one would be 9."""
        xi = mixture(FedAMP(), points((0.0,), (1.0,), (3.0,), (7.0,)))
        assert float(xi[0, 1] / xi[0, 2]) == pytest.approx(math.exp((9 - 1) / 12.5), abs=1e-12)

    def test_is_a_gradient_step_on_the_attention(self) -> None:
        """Of sum_{i<j} A(||w_i - w_j||^2), A(x) = 1 - exp(-x / sigma), with a step of alpha / 2."""
        w = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
        models = [{"w": row.detach()} for row in w]
        xi = mixture(FedAMP(attention=0.4), models)
        squares = {(i, j): (w[i] - w[j]).square().sum() for i, j in combinations(range(4), 2)}
        sigma = torch.stack([*squares.values()] * 2).quantile(0.5).detach()
        alpha = float(xi[0, 1]) * sigma * torch.exp(squares[0, 1].detach() / sigma)
        attention = sum(1 - torch.exp(-square / sigma) for square in squares.values())
        (slope,) = torch.autograd.grad(attention, w)
        u = torch.stack([params["w"] for params in mix(models, xi)])
        assert torch.allclose(u, w.detach() - 0.5 * alpha * slope, rtol=0, atol=1e-14)

    @pytest.mark.parametrize("spread", [1e-6, 0.1, 100.0])
    def test_rows_are_distributions_at_any_scale(self, spread: float) -> None:
        fed = toy.alike(dtype="float64")
        for attention in (0.0, 1e-9, 0.5, 1.0):
            xi = FedAMP(attention=attention).weights_of_seen(all_seen(scattered(fed, spread)), fed)
            assert torch.allclose(xi.sum(dim=1), torch.ones(5).double(), rtol=0, atol=1e-15), attention
            assert (xi >= -1e-15).all(), attention
            assert float((1 - xi.diagonal()).max()) == pytest.approx(attention, abs=1e-14)

    def test_with_little_attention_everybody_keeps_its_own(self) -> None:
        xi = mixture(FedAMP(attention=1e-9), points((0.0,), (1.0,), (3.0,)))
        assert torch.allclose(xi, torch.eye(3).double(), rtol=0, atol=1e-8)

    def test_equal_models_are_handled(self) -> None:
        xi = mixture(FedAMP(), points((2.0,), (2.0,), (2.0,)))
        assert torch.allclose(xi, torch.full((3, 3), 0.25).double() + 0.25 * torch.eye(3), rtol=0, atol=1e-15)

    @pytest.mark.parametrize("method", [FedAMP(), HeurFedAMP()], ids=["plain", "heuristic"])
    def test_twins_get_one_mixture_and_permuting_permutes(self, method: FedAMP) -> None:
        models = points((0.1, 1.0), (0.1, 1.0), (-2.0, 3.0), (1.0, 0.5))
        models[1]["w"] = models[0]["w"].clone()
        xi = mixture(method, models)
        if isinstance(method, HeurFedAMP):  # its own weight is fixed, and the twin's is what is learned
            assert xi[0, 1] == xi[1, 0] == pytest.approx(float(xi[0, 1:].max()), abs=1e-15)
        else:
            one, other, *_ = mix(models, xi)
            assert torch.allclose(one["w"], other["w"], rtol=0, atol=1e-14)
        order = [2, 0, 3, 1]
        moved = mixture(method, [models[i] for i in order])
        assert torch.allclose(moved, xi[order][:, order], rtol=0, atol=1e-14)

    def test_heuristic_by_hand(self) -> None:
        """Directions of cosines 0 and 1/sqrt 2; attention 0.6, sharpness 2."""
        xi = mixture(HeurFedAMP(attention=0.6, sharpness=2.0), points((1.0, 0.0), (0.0, 3.0), (2.0, 2.0)))
        near = math.exp(2 / math.sqrt(2))
        first = [0.4, 0.6 / (1 + near), 0.6 * near / (1 + near)]
        assert xi[0].tolist() == pytest.approx(first, abs=1e-14)
        assert xi[2].tolist() == pytest.approx([0.3, 0.3, 0.4], abs=1e-14)

    def test_heuristic_without_sharpness_weighs_others_alike(self) -> None:
        xi = mixture(HeurFedAMP(attention=0.9, sharpness=0.0), points((1.0, 0.0), (0.0, 3.0), (2.0, 2.0), (1.0, -5.0)))
        expected = torch.full((4, 4), 0.3, dtype=torch.float64).fill_diagonal_(0.1)
        assert torch.allclose(xi, expected, rtol=0, atol=1e-15)


class TestLocalTraining:
    @pytest.mark.parametrize(
        ("method", "architecture"),
        [(FedAMP(coupling=0.0, attention=0.0), "linear"), (HeurFedAMP(coupling=0.0, attention=0.0), "both")],
        ids=["plain", "heuristic"],
    )
    def test_without_attention_and_coupling_it_is_local_training(self, method: FedAMP, architecture: str) -> None:
        """Bit for bit, over rounds with cohorts."""
        schedule = Schedule(rounds=3, participation=0.6)
        fed = toy.alike(architecture)
        run, alone = (m.personal(engine.run(m, fed, schedule).state, EVERYONE, fed) for m in (method, Local()))
        assert toy.same(run, alone)

    def test_clients_start_from_the_mixture(self) -> None:
        """Who does not train returns it: a client that kept its own model would return that."""
        fed = toy.alike(dtype="float64", training=STILL)
        state = all_seen(scattered(fed))
        after, _ = FedAMP().round(state, EVERYONE, 2, fed)
        xi = FedAMP().weights_of_seen(state, fed)
        expected = dict(zip(EVERYONE, mix(list(state.models.values()), xi), strict=True))
        assert toy.same(after.models, expected)
        assert toy.distance(after.models, state.models) > 1e-2

    def test_the_pull_toward_the_mixture_has_a_gradient(self) -> None:
        """One full-batch step ends at u - eta g; a second one must add -eta 2 coupling (w - u)."""
        training = LocalTraining(epochs=2, batch_size=100, learning_rate=0.1)
        fed = toy.alike(dtype="float64", training=training)
        once = toy.again(fed, training=replace(training, epochs=1))
        state, names = all_seen(scattered(fed)), fed.trained_names
        free, pulled = (
            vector_of(FedAMP(coupling).round(state, [3], 2, fed)[0].models[3], names) for coupling in (0.0, 0.7)
        )
        first = vector_of(FedAMP(0.7).round(state, [3], 2, once)[0].models[3], names)
        u = vector_of(mix(list(state.models.values()), FedAMP().weights_of_seen(state, fed))[0], names)
        assert torch.allclose(pulled, free - 0.1 * 2 * 0.7 * (first - u), rtol=0, atol=1e-13)
        assert float((pulled - free).abs().max()) > 1e-3

    def test_the_weight_of_others_is_reported(self) -> None:
        fed = toy.alike()
        state = all_seen(scattered(fed))
        _, report = FedAMP().round(state, EVERYONE, 2, fed)
        assert torch.equal(report.coefficients, FedAMP().weights_of_seen(state, fed))


class TestServer:
    def test_a_first_participation_is_held_near_the_initial_model(self) -> None:
        """As Algorithm 1's first round: u mixes w^0s, all of them the common initial model, and is the anchor."""
        training = LocalTraining(epochs=2, batch_size=100, learning_rate=0.1)
        fed = toy.alike(dtype="float64", training=training)
        names, start = fed.trained_names, fed.initial_model("linear")
        free, pulled, once = (
            vector_of(method.round(method.init(these), [3], 4, these)[0].models[3], names)
            for method, these in (
                (FedAMP(0.0), fed),
                (FedAMP(0.7), fed),
                (FedAMP(0.7), toy.again(fed, training=replace(training, epochs=1))),
            )
        )
        expected = free - 0.1 * 2 * 0.7 * (once - vector_of(start, names))
        assert torch.allclose(pulled, expected, rtol=0, atol=1e-13)

    def test_in_the_first_round_no_client_has_uploaded(self) -> None:
        fed = toy.alike()
        _, report = FedAMP(coupling=0.0).round(FedAMP().init(fed), EVERYONE, 1, fed)
        assert toy.same(report.after_local, fed.train(fed.initial_models(), 1))
        assert torch.equal(report.coefficients, torch.eye(5).double())

    def test_last_uploads_of_absent_clients_count_and_initial_models_do_not(self) -> None:
        fed = toy.alike(training=STILL)
        models = scattered(fed)
        state = PersonalState({n: models[n] for n in (3, 7, 12)})
        xi = FedAMP().weights_of_seen(state, fed)
        assert (xi[0, [1, 3]] > 0).all()
        assert not xi[[0, 1, 3]][:, [2, 4]].any()
        assert torch.equal(xi[[2, 4]], torch.eye(5).double()[[2, 4]])
        after, report = FedAMP().round(state, [3, 11], 2, fed)
        assert torch.equal(report.coefficients[0], xi[0])  # with what it took of absent 7's and 12's
        assert torch.equal(report.coefficients[1:], torch.eye(5).double()[1:])
        assert set(after.models) == {3, 7, 11, 12}
        assert not toy.same(after.models[3], models[3])  # mixed with absent 7's and 12's
        assert toy.distance({11: after.models[11]}, {11: fed.initial_models()[11]}) == 0.0
