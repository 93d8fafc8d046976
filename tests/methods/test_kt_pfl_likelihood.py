"""KT-pFL whose coefficients maximize the likelihood of the clients' validation labels.

What is minimized is tested in `core/matrix/test_objectives.py`; here: of which models, images, by whom, for how much.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from scipy.optimize import minimize
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.rounds import contract
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState
from ktpfl_pipeline.methods.kt_pfl_likelihood import KTpFLLikelihood, true_label_probabilities
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
EXACT = KTpFLLikelihood(update="exact", rho=0.0)


def federation(clients: int = 5, **settings: Any) -> Federation:
    """Return clients with 6, 4, 5, 1 and 3 validation images that no model tells apart for sure."""
    fed = toy.federation(clients, **settings)
    blurred = [blur(client.validation, n) for client, n in zip(fed.clients, (6, 4, 5, 1, 3), strict=False)]
    return toy.again(
        fed, clients=tuple(replace(client, validation=v) for client, v in zip(fed.clients, blurred, strict=True))
    )


def blur(samples: LabeledDataset, n: int) -> LabeledDataset:
    images = samples.inputs[:n].roll(1, dims=0) // 2 + samples.inputs[:n] // 2
    return LabeledDataset(images, samples.labels[:n])


def by_hand(fed: Federation, models: Models) -> list[Tensor]:
    """Return what each model gives to the true label of each of a client's validation images, (V_n, |S|) a client."""
    found = []
    for n in models:
        validation = fed.by_id[n].validation
        columns = []
        for m, params in models.items():
            module = toy.build(fed.by_id[m].architecture).to(torch.float64).eval()
            module.load_state_dict(params)
            soft = torch.softmax(module(validation.inputs.double() / 127.5 - 1).detach(), dim=1)
            columns.append(torch.stack([row[label] for row, label in zip(soft, validation.labels, strict=True)]))
        found.append(torch.stack(columns, dim=1))
    return found


def nll(c: Tensor, probabilities: Tensor) -> float:
    return float(-(probabilities @ c).log().mean())


class TestProbabilities:
    def test_the_likelihoods_are_of_every_model_on_every_clients_validation_images(self) -> None:
        """Who has fewer images than the most has ones in the rest."""
        fed = federation(dtype="float64")
        models = fed.train(fed.initial_models(), 1)
        found, images = true_label_probabilities({n: models[n] for n in (12, 3, 11)}, fed)
        assert images.tolist() == [1.0, 6.0, 5.0]
        assert found.shape == (3, 6, 3)
        for row, expected in enumerate(by_hand(fed, {n: models[n] for n in (12, 3, 11)})):
            assert torch.allclose(found[row, : len(expected)], expected, rtol=0, atol=1e-14)
            assert (found[row, len(expected) :] == 1).all()

    def test_without_validation_images_it_is_refused(self) -> None:
        fed = federation()
        nothing = fed.clients[1].validation.take(torch.tensor([], dtype=torch.int64))
        fed = toy.again(fed, clients=(fed.clients[0], replace(fed.clients[1], validation=nothing)))
        methods = {"kt_pfl_likelihood": EXACT, "kt_pfl": KTpFL(), "local": Local()}
        with pytest.raises(
            InputError, match=r"^kt_pfl_likelihood cannot .* client 7 has none.*compare=kt_pfl\+local\.$"
        ):
            contract.check_methods(methods, fed)
        del methods["kt_pfl_likelihood"]
        contract.check_methods(methods, fed)


class TestCoefficients:
    def test_of_two_clients_maximize_the_likelihood_of_their_labels(self) -> None:
        """Against a grid of 10001 mixtures."""
        fed = federation(2, dtype="float64")
        after, report = EXACT.round(EXACT.init(fed), [3, 7], 1, fed)
        share = torch.linspace(0, 1, 10001, dtype=torch.float64)
        for row, p in enumerate(by_hand(fed, report.after_local)):
            values = -(share[:, None] * p[:, 0] + (1 - share)[:, None] * p[:, 1]).log().mean(dim=1)
            assert nll(after.coefficients[row], p) <= values.min() + 1e-9
            assert after.coefficients[row, 0].item() == pytest.approx(share[values.argmin()].item(), abs=1e-3)

    @pytest.mark.parametrize("rho", [0.0, 0.1, 2.0])
    def test_of_five_agree_with_scipy(self, rho: float) -> None:
        """Of the objective -lambda a_n log-likelihood + rho |c - 1/5|^2, lambda a_n = 5 D_n / D."""
        fed, method = federation(dtype="float64"), replace(EXACT, rho=rho)
        after, report = method.round(method.init(fed), EVERYONE, 1, fed)
        for row, p in enumerate(by_hand(fed, report.after_local)):
            weight = 5 * toy.SIZES[row] / sum(toy.SIZES)

            def value(c: Any, p: Tensor = p, weight: float = weight) -> float:
                c = torch.as_tensor(c, dtype=torch.float64)
                return weight * nll(c, p) + rho * float((c - 0.2).square().sum())

            optimum = minimize(
                value,
                [0.2] * 5,
                method="SLSQP",
                bounds=[(0, 1)] * 5,
                constraints={"type": "eq", "fun": lambda c: c.sum() - 1},
                options={"ftol": 1e-14, "maxiter": 500},
            )
            assert value(after.coefficients[row]) <= optimum.fun + 1e-7
            assert value(after.coefficients[row]) >= optimum.fun - 1e-7
            assert value(after.coefficients[row]) < value([0.2] * 5) - 1e-6
            if rho:  # else there may be many
                assert torch.allclose(after.coefficients[row], torch.tensor(optimum.x), rtol=0, atol=1e-3)

    def test_fitted_rows_are_not_worse_than_own_model_and_equal_weights(self) -> None:
        """Theorem 1, of the distribution that the coefficients were fitted to."""
        fed = federation(dtype="float64")
        after, report = EXACT.round(EXACT.init(fed), EVERYONE, 1, fed)
        for row, p in enumerate(by_hand(fed, report.after_local)):
            fitted = nll(after.coefficients[row], p)
            assert fitted <= nll(torch.eye(5, dtype=torch.float64)[row], p) + 1e-8
            assert fitted <= nll(torch.full((5,), 0.2, dtype=torch.float64), p) + 1e-8

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "exact"])
    def test_each_update_lowers_the_objective(self, update: str) -> None:
        fed, method = federation(dtype="float64"), KTpFLLikelihood(update=update, step=0.1, rho=0.1)
        after, report = method.round(method.init(fed), EVERYONE, 1, fed)
        for row, p in enumerate(by_hand(fed, report.after_local)):
            c, weight = after.coefficients[row], 5 * toy.SIZES[row] / sum(toy.SIZES)
            value = weight * nll(c, p) + 0.1 * float((c - 0.2).square().sum())
            assert value < weight * nll(torch.full((5,), 0.2, dtype=torch.float64), p) - 1e-6
            assert c.sum().item() == pytest.approx(1.0, abs=1e-14)
            assert c.min() >= 0

    def test_one_eg_step_by_hand_in_a_cohort(self) -> None:
        """Rows of the cohort's block, lambda 3, a_n of the cohort; all else as it was."""
        fed = federation(dtype="float64")
        method = KTpFLLikelihood(step=0.3, steps=1, rho=0.5)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        cohort, rows = [20, 3, 11], [4, 0, 2]
        after, report = method.round(before, cohort, 2, fed)
        old = before.coefficients[rows][:, rows]
        mass = old.sum(dim=1, keepdim=True)
        c, images = old / mass, dict(zip(toy.IDS, toy.SIZES, strict=True))
        g = torch.zeros(3, 3, dtype=torch.float64)
        for row, p in enumerate(by_hand(fed, report.after_local)):
            weight = 3 * images[cohort[row]] / 50
            for m in range(3):
                g[row, m] = -weight * (p[:, m] / (p @ c[row])).mean() + 2 * 0.5 * (c[row, m] - 1 / 3)
        stepped = c * torch.exp(-0.3 * g)
        expected = before.coefficients.clone()
        for i, j in itertools.product(range(3), range(3)):
            expected[rows[i], rows[j]] = stepped[i, j] / stepped[i].sum() * mass[i, 0]
        assert torch.allclose(after.coefficients, expected, rtol=0, atol=1e-13)
        assert torch.equal(after.coefficients[[1, 3]], before.coefficients[[1, 3]])
        assert (after.coefficients - before.coefficients).abs().max() > 1e-3

    def test_only_a_clients_own_row_sees_its_labels(self) -> None:
        """So the labels need not leave it: it can find its row itself."""
        fed = federation()
        labels = (fed.clients[2].validation.labels + 1) % 3
        client = replace(fed.clients[2], validation=replace(fed.clients[2].validation, labels=labels))
        relabeled = toy.again(fed, clients=(*fed.clients[:2], client, *fed.clients[3:]))
        one, other = (EXACT.round(EXACT.init(these), EVERYONE, 1, these)[0] for these in (fed, relabeled))
        rest = [0, 1, 3, 4]
        assert torch.allclose(one.coefficients[rest], other.coefficients[rest], rtol=0, atol=1e-15)
        assert (one.coefficients[2] - other.coefficients[2]).abs().max() > 1e-2

    def test_neither_the_public_set_nor_test_images_matter(self) -> None:
        fed = federation()
        public = fed.public.flip(0).roll(3, dims=2)
        clients = tuple(replace(client, test=toy.samples(9, seed=5)) for client in fed.clients)
        one, other = (
            EXACT.round(EXACT.init(these), EVERYONE, 1, these)[0]
            for these in (fed, toy.again(fed, public=public, clients=clients))
        )
        assert torch.equal(one.coefficients, other.coefficients)
        assert not toy.same(one.models, other.models)

    def test_the_default_step_shrinks_with_rho(self) -> None:
        """2 / (2 + rho), as for the divergence."""
        fed, method = federation(), KTpFLLikelihood(rho=6.0)
        one, other = (m.round(m.init(fed), EVERYONE, 1, fed)[0] for m in (method, replace(method, step=0.25)))
        assert torch.equal(one.coefficients, other.coefficients)


class TestHeldFixed:
    def test_frozen_it_is_fedmd(self) -> None:
        """Bit for bit, over rounds with cohorts."""
        schedule = Schedule(rounds=3, participation=0.6)
        method = KTpFLLikelihood(update="frozen")
        one, fedmd = (engine.run(m, federation(), schedule) for m in (method, FedMD()))
        assert toy.same(one.state.models, fedmd.state.models)
        assert torch.equal(one.state.coefficients, uniform(5))

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax"])
    def test_a_step_of_0_changes_nothing(self, update: str) -> None:
        """But for the rounding of a logarithm and back."""
        fed, method = federation(), KTpFLLikelihood(update=update, step=0.0)
        start = torch.rand(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
        start = start / start.sum(dim=1, keepdim=True)
        after, _ = method.round(KTpFLState(fed.initial_models(), start), EVERYONE, 1, fed)
        assert torch.allclose(after.coefficients, start, rtol=0, atol=1e-15)

    def test_of_no_weight_it_stays_at_equal_weights(self) -> None:
        fed, method = federation(), KTpFLLikelihood(divergence_weight=0.0)
        after, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        assert torch.allclose(after.coefficients, uniform(5), rtol=0, atol=1e-15)

    def test_a_cohort_of_one_keeps_its_row(self) -> None:
        fed, method = federation(), KTpFLLikelihood()
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, [11], 2, fed)
        assert torch.equal(after.coefficients, before.coefficients)
        own = Traffic(
            predictions_up=4 * 13 * 3,
            predictions_down=4 * 13 * 3,
            coefficients_up=4,
            parameters_up=4 * 819,
            public_down=13 * 64,
        )
        assert report.traffic == {11: own}


class TestTraffic:
    """Parameters: linear 64·3 + 3; conv 4·9 + 4, BatchNorm's four times 4, 36·3 + 3; mlp 64·12 + 12, 12·3 + 3."""

    def test_models_travel_and_a_row_of_coefficients(self) -> None:
        """Predictions both ways as ever, own model up, those of the two others down, and three numbers up."""
        fed, method = federation(), create("kt_pfl_likelihood")
        _, report = method.round(method.init(fed), [3, 7, 11], 1, fed)
        linear, conv, mlp = 4 * 195, 4 * 167, 4 * 819
        common = {
            "predictions_up": 4 * 13 * 3,
            "predictions_down": 4 * 13 * 3,
            "coefficients_up": 3 * 4,
            "public_down": 13 * 64,
        }
        assert report.traffic == {
            3: Traffic(**common, parameters_up=linear, parameters_down=conv + mlp),
            7: Traffic(**common, parameters_up=conv, parameters_down=linear + mlp),
            11: Traffic(**common, parameters_up=mlp, parameters_down=linear + conv),
        }

    def test_the_row_is_four_bytes_a_client(self) -> None:
        fed = federation()
        rows = {}
        for cohort in (EVERYONE, [7, 20], [12]):
            ups = [
                kind().round(kind().init(fed), cohort, 1, fed)[1].traffic[cohort[-1]].knowledge_up
                for kind in (KTpFLLikelihood, KTpFL)
            ]
            rows[len(cohort)] = ups[0] - ups[1]
        assert rows == {5: 20, 2: 8, 1: 4}

    def test_labels_and_images_never_travel(self) -> None:
        """With ten times the validation images, the bytes are the same."""
        fed, method = federation(), KTpFLLikelihood()
        more = tuple(replace(client, validation=toy.samples(60, seed=client.id)) for client in fed.clients)
        reports = [method.round(method.init(f), EVERYONE, 1, f)[1] for f in (fed, toy.again(fed, clients=more))]
        assert reports[0].traffic == reports[1].traffic


def test_the_authors_update_has_a_different_objective() -> None:
    with pytest.raises(
        InputError, match=r"^kt_pfl_likelihood\.update is 'authors'; it must be one of eg, pgd, softmax, exact"
    ):
        create("kt_pfl_likelihood", {"update": "authors"})
