"""KT-pFL as a whole round."""

import itertools
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.objectives import Divergence
from ktpfl_pipeline.core.matrix.teachers import log_soft_predictions, mix_teachers, soft_predictions
from ktpfl_pipeline.core.matrix.updates import UPDATES
from ktpfl_pipeline.core.method import PersonalState
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.core.settings import Distillation, LocalTraining, Privacy
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState
from ktpfl_pipeline.methods.kt_pfl_likelihood import KTpFLLikelihood
from ktpfl_pipeline.methods.kt_pfl_params import KTpFLParams
from ktpfl_pipeline.methods.local import Local

VARIANTS = ("kt_pfl", "kt_pfl_likelihood", "kt_pfl_paper_literal", "kt_pfl_authors")
EXCHANGES = (*VARIANTS, "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "ds_fl", "comet")  # of soft predictions
EVERYONE = list(toy.IDS)
TWO_ROUNDS = Schedule(rounds=2, participation=0.6)


@cache
def trained_alone() -> Run:
    return engine.run(Local(), toy.federation(), TWO_ROUNDS)


@cache
def taught_the_average() -> Run:
    """FedMD in float64."""
    return engine.run(FedMD(), toy.federation(dtype="float64"), Schedule(rounds=2, evaluate_every=2))


def accuracies(history: list[RoundRecord]) -> list[dict[str, list[float]]]:
    return [record.accuracy for record in history]


def own_teachers(fed: Federation, models: Any, batch: Tensor) -> Tensor:
    return soft_predictions(fed.logits(models, batch), fed.distillation.temperature)


def updated(method: KTpFL, logits: Tensor, c: Tensor | None = None, cohort: tuple[int, ...] = toy.IDS) -> Tensor:
    """Return the matrix, 1/N unless given, after one round's update with these predictions of the cohort."""
    fed, soft = toy.federation(), soft_predictions(logits)
    upload = exchange.Upload({n: {} for n in cohort[: len(logits)]}, fed.public_batch(1), logits, soft)
    c = uniform(len(logits)) if c is None else c
    return method.learn(c, torch.arange(len(c)), method.objective(upload, fed))[1]


class TestDistillationLoss:
    """The gradient of f KL(p || softmax(z/T)) with respect to the logits is f (softmax(z/T) - p) / (T b)."""

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0, 20.0])
    @pytest.mark.parametrize(("loss", "power", "shared"), [("t2", 1, 1), ("plain", -1, 1), ("mean", -1, 5)])
    def test_gradient(self, temperature: float, loss: Any, power: int, shared: int) -> None:
        """T² leaves the factor T; the plain KL 1 / T; the mean over all elements 1 / T over K = 5 classes."""
        generator = torch.Generator().manual_seed(0)
        z = 3 * torch.randn(7, 5, generator=generator, dtype=torch.float64)
        p = torch.softmax(torch.randn(7, 5, generator=generator, dtype=torch.float64), dim=1)
        z.requires_grad_()
        (found,) = torch.autograd.grad(operations.distillation_loss(z, p, temperature, loss), z)
        expected = temperature**power * (torch.softmax(z / temperature, dim=1) - p) / (7 * shared)
        assert torch.allclose(found, expected, rtol=0, atol=1e-14)

    @pytest.mark.parametrize(("loss", "value"), [("t2", 9 * 0.1308120), ("plain", 0.1308120), ("mean", 0.0654060)])
    def test_value_by_hand(self, loss: Any, value: float) -> None:
        """Student (1/2, 1/2), teacher (3/4, 1/4): KL = 0.75 ln 1.5 + 0.25 ln 0.5 = 0.1308120; nine times it at T = 3.

        The mean over both samples and both classes is half of the KL.
        """
        z, p = torch.zeros(2, 2, dtype=torch.float64), torch.tensor([[0.75, 0.25]] * 2, dtype=torch.float64)
        assert operations.distillation_loss(z, p, 3.0, loss).item() == pytest.approx(value, abs=1e-6)

    def test_the_mean_is_that_of_the_released_code(self) -> None:
        """There the loss is torch's kl_div with the reduction ``mean``, of one batch after another."""
        z, p = torch.randn(6, 4, dtype=torch.float64), torch.softmax(torch.randn(6, 4, dtype=torch.float64), dim=1)
        expected = F.kl_div(F.log_softmax(z / 10.0, dim=1), p, reduction="none").mean()
        assert operations.distillation_loss(z, p, 10.0, "mean").item() == pytest.approx(expected.item(), rel=1e-12)

    def test_the_size_of_the_step_does_not_vanish_at_high_temperature(self) -> None:
        z = torch.tensor([[2.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
        other = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64)
        sizes = []
        for temperature in (10.0, 1000.0):
            p = torch.softmax(other / temperature, dim=1)
            (gradient,) = torch.autograd.grad(operations.distillation_loss(z, p, temperature), z)
            sizes.append(gradient.norm().item())
        assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


class TestMatricesThatAreNotLearned:
    def test_they_stay_as_they_were_drawn(self) -> None:
        """In rounds of all clients, and in rounds of three; another seed draws other rows."""
        fed, method = toy.federation(), KTpFL(update="random")
        first = method.init(fed).coefficients
        for schedule in (Schedule(rounds=2), TWO_ROUNDS):
            assert torch.equal(engine.run(method, toy.federation(), schedule).state.coefficients, first)
        assert not torch.equal(first, method.init(toy.federation(seed=1)).coefficients)
        assert (first.sum(dim=1) - 1).abs().max() < 1e-12

    @pytest.mark.parametrize("method", [KTpFL(update="label_overlap"), KTpFLParams(update="label_overlap")])
    def test_overlap_of_true_labels_by_hand(self, method: Any) -> None:
        """Clients with labels 0 0 1 1, 0 0 0 0 0 0 0 0 and 2 2: overlaps 1/2 and 0; weights a_m o_nm²."""
        labels = ([0, 0, 1, 1], [0] * 8, [2, 2])
        fed = toy.federation(3, architectures=("linear",))
        owned = [
            LabeledDataset(client.train.inputs[: len(own)], torch.tensor(own))
            for client, own in zip(fed.clients, labels, strict=True)
        ]
        fed = toy.again(
            fed, clients=tuple(replace(client, train=own) for client, own in zip(fed.clients, owned, strict=True))
        )
        expected = [[4 / 6, 2 / 6, 0], [1 / 9, 8 / 9, 0], [0, 0, 1]]
        assert torch.allclose(method.init(fed).coefficients, torch.tensor(expected).double(), rtol=0, atol=1e-7)

    def test_true_labels_are_not_read_where_epsilon_must_cover_it(self) -> None:
        fed = toy.federation(training=LocalTraining(privacy=Privacy(1.0)), architectures=("linear",))
        with pytest.raises(InputError, match="reads the labels of training samples"):
            KTpFL(update="label_overlap").init(fed)


class TestTeachingOneself:
    """C = I."""

    @pytest.mark.parametrize("temperature", [1.0, 3.0])
    def test_gradient_vanishes(self, temperature: float) -> None:
        # One batch and a step of 1: what the weights move by is the gradient.
        distillation = Distillation(1, 24, learning_rate=1.0, temperature=temperature, batch_norm="frozen")
        fed = toy.federation(dtype="float64", distillation=distillation, architectures=(*toy.ARCHITECTURES, "both"))
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        distilled = fed.distill(models, own_teachers(fed, models, batch), batch, 1)
        assert toy.distance(models, distilled) < 1e-15
        assert max(abs(loss) for loss in fed.current.losses["distill"].values()) < 1e-15

    @pytest.mark.parametrize("temperature", [1.0, 3.0])
    def test_a_phase_of_distillation_changes_nothing(self, temperature: float) -> None:
        distillation = Distillation(3, 5, learning_rate=0.05, temperature=temperature, batch_norm="frozen")
        fed = toy.federation(distillation=distillation)
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        distilled = fed.distill(models, own_teachers(fed, models, batch), batch, 1)
        assert toy.distance(models, distilled) < 1e-6

    def test_a_round_is_local_training(self) -> None:
        fed, method = toy.federation(), KTpFL(update="frozen")
        start = KTpFLState(fed.initial_models(), torch.eye(5, dtype=torch.float64))
        after, _ = method.round(start, EVERYONE, 1, fed)
        alone, _ = Local().round(Local().init(fed), EVERYONE, 1, fed)
        assert toy.distance(after.models, alone.models) < 1e-6

    def test_in_training_mode_it_would_not_vanish(self) -> None:
        """Why BatchNorm is frozen: else the uploaded prediction is not the student's."""
        distillation = Distillation(epochs=1, batch_size=24, learning_rate=1.0, batch_norm="train")
        fed = toy.federation(dtype="float64", distillation=distillation, architectures=("conv",))
        models, batch = fed.train(fed.initial_models(), 1), fed.public_batch(1)
        assert toy.distance(models, fed.distill(models, own_teachers(fed, models, batch), batch, 1)) > 1e-4


@pytest.mark.parametrize(
    ("name", "steps"), [("kt_pfl", "none"), *zip(EXCHANGES, itertools.cycle(["of length 0", "none"]), strict=False)]
)
def test_without_distillation_it_is_local_training(name: str, steps: str) -> None:
    """R = 0 or eta_2 = 0, bit for bit, models and accuracies; all distill by one function, so each method has one."""
    nothing = Distillation(epochs=0) if steps == "none" else Distillation(batch_size=8, learning_rate=0.0)
    run = engine.run(create(name), toy.federation(distillation=nothing), TWO_ROUNDS)
    alone = trained_alone()
    assert toy.same(run.state.models, alone.state.models)
    assert accuracies(run.history) == accuracies(alone.history)
    for record, counterpart in zip(run.history, alone.history, strict=True):
        assert record.loss["train"] == counterpart.loss["train"]
        assert record.loss["test"] == counterpart.loss["test"]


@pytest.mark.parametrize(("participation", "order"), [(1.0, "paper"), (0.6, "coefficients_first"), (0.2, "paper")])
def test_frozen_is_fedmd(participation: float, order: str) -> None:
    """C held at 1/N, bit for bit, over rounds with cohorts."""
    schedule = Schedule(rounds=3, participation=participation)
    kt_pfl = engine.run(KTpFL(update="frozen", order=order), toy.federation(), schedule)
    fedmd = engine.run(FedMD(), toy.federation(), schedule)
    assert toy.same(kt_pfl.state.models, fedmd.state.models)
    assert accuracies(kt_pfl.history) == accuracies(fedmd.history)
    assert [record.loss for record in kt_pfl.history] == [record.loss for record in fedmd.history]
    assert torch.equal(kt_pfl.state.coefficients, uniform(5))


@pytest.mark.parametrize(
    ("kind", "update"), [(KTpFL, "eg"), (KTpFL, "exact"), (KTpFLLikelihood, "softmax"), (KTpFLLikelihood, "exact")]
)
def test_a_strong_pull_is_nearly_fedmd(kind: type[KTpFL], update: Any) -> None:
    """The distance from 1/N, and so from FedMD's models, falls with 1/rho; float64, two rounds."""
    fedmd = taught_the_average().state.models
    distances = []
    for rho in (1e3, 1e6):
        method = kind(update=update, rho=rho)
        state = engine.run(method, toy.federation(dtype="float64"), Schedule(rounds=2, evaluate_every=2)).state
        assert (state.coefficients - 0.2).abs().max() < 10 / rho
        distances.append(toy.distance(state.models, fedmd))
    assert distances[0] > 100 * distances[1] > 0


class TestPartialParticipation:
    """And what the contract test leaves to this method."""

    @pytest.mark.parametrize("update", list(UPDATES))
    def test_absent_clients_keep_row_column_and_model(self, update: str) -> None:
        fed, method = toy.federation(), KTpFL(update=update, step=0.05)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, [3, 12], 2, fed)
        absent = [1, 2, 4]  # rows of 7, 11 and 20
        assert torch.equal(after.coefficients[absent], before.coefficients[absent])
        assert torch.equal(after.coefficients[:, absent], before.coefficients[:, absent])
        assert (after.coefficients.sum(dim=1) - 1).abs().max() < 1e-14
        assert after.coefficients.min() >= 0
        assert torch.equal(after.coefficients, before.coefficients) == (UPDATES[update] is UPDATES["frozen"])
        assert all(toy.same(after.models[n], before.models[n]) for n in (7, 11, 20))
        assert torch.equal(report.coefficients, after.coefficients)

    def test_a_cohort_of_one_teaches_itself(self) -> None:
        fed, method = toy.federation(), KTpFL()
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, _ = method.round(before, [11], 2, fed)
        assert torch.equal(after.coefficients, before.coefficients)
        alone = fed.train({11: before.models[11]}, 2)
        assert toy.distance({11: after.models[11]}, alone) < 1e-6

    def test_everyone_as_a_cohort_is_full_participation(self) -> None:
        one = engine.run(KTpFL(), toy.federation(), Schedule(rounds=2, participation=1.0))
        state, fed = KTpFL().init(toy.federation()), toy.federation()
        for t in (1, 2):
            state, _ = KTpFL().round(state, EVERYONE, t, fed)
        assert toy.same(one.state, state)


class TestOrder:
    def test_the_two_orders_differ_only_in_the_teachers(self) -> None:
        fed, orders = toy.federation(), ("paper", "coefficients_first")
        paper, first = (KTpFL(order=order).round(KTpFL().init(fed), EVERYONE, 1, fed)[0] for order in orders)
        assert torch.equal(paper.coefficients, first.coefficients)
        assert toy.distance(paper.models, first.models) > 1e-4

    @pytest.mark.parametrize("order", ["paper", "coefficients_first"])
    def test_a_round_step_by_step(self, order: str) -> None:
        """Algorithm 1 from the verbs and plain arithmetic: a cohort, a_n, lambda, rho, T and T_c all at work."""
        distillation = Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0)
        fed = toy.federation(distillation=distillation)
        method = KTpFL(step=0.3, steps=1, rho=0.5, divergence_weight=4.0, temperature=1.5, order=order)
        before, _ = KTpFL().round(KTpFL().init(fed), EVERYONE, 1, fed)
        cohort, rows = [3, 11, 20], [0, 2, 4]
        after, _ = method.round(before, cohort, 2, fed)

        trained = fed.train({n: before.models[n] for n in cohort}, 2)
        z = fed.logits(trained, fed.public_batch(2)).double()
        old = before.coefficients[rows][:, rows]
        mass = old.sum(dim=1, keepdim=True)
        c = old / mass
        s_c = torch.softmax(z / 1.5, dim=2)
        a = torch.tensor([16.0, 20.0, 14.0], dtype=torch.float64) / 50
        g = torch.zeros(3, 3, dtype=torch.float64)
        for n, m in itertools.product(range(3), range(3)):
            p = sum(c[n, j] * s_c[j] for j in range(3))
            h = (s_c[m] * (p.log() - s_c[n].log() + 1)).sum(dim=1).mean()
            g[n, m] = 4.0 * a[n] * h + 2 * 0.5 * (c[n, m] - 1 / 3)
        stepped = c * torch.exp(-0.3 * g)
        new = stepped / stepped.sum(dim=1, keepdim=True)
        s = torch.softmax(z / 2.0, dim=2)
        mixing = c if order == "paper" else new
        teachers = torch.stack([sum(mixing[n, m] * s[m] for m in range(3)) for n in range(3)])
        distilled = fed.distill(trained, teachers, fed.public_batch(2), 2)

        assert torch.allclose(after.coefficients[rows][:, rows], new * mass, rtol=0, atol=1e-14)
        assert toy.distance({n: after.models[n] for n in cohort}, distilled) < 1e-6
        assert toy.distance(distilled, trained) > 1e-3


class TestHyperparameters:
    def test_defaults(self) -> None:
        assert asdict(create("kt_pfl")) == {
            "update": "eg",
            "step": None,
            "steps": 10,
            "rho": 2.0,
            "divergence_weight": None,
            "temperature": 1.0,
            "row_weight": "data",
            "order": "paper",
        }

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("kt_pfl_paper_literal", {"update": "pgd", "step": 0.01, "steps": 1, "rho": 0.7, "divergence_weight": 1.0}),
            (
                "kt_pfl_authors",
                {"update": "authors", "step": 1.0, "steps": 1, "rho": 0.7, "order": "coefficients_first"},
            ),
        ],
    )
    def test_presets(self, name: str, changes: dict[str, Any]) -> None:
        assert create(name) == KTpFL(**changes)
        assert create(name, {"rho": 0.1}) == KTpFL(**{**changes, "rho": 0.1})
        assert create(name, {"step": 0.2}) == KTpFL(**{**changes, "step": 0.2})

    def test_limits_are_allowed(self) -> None:
        limits = {"step": 0.0, "steps": 1, "rho": 0.0, "divergence_weight": 0.0, "temperature": 1e-3}
        assert {name: getattr(create("kt_pfl", limits), name) for name in limits} == limits

    @pytest.mark.parametrize(("rho", "step"), [(0.0, 1.0), (2.0, 0.5), (6.0, 0.25)])
    def test_the_default_step_shrinks_with_rho(self, rho: float, step: float) -> None:
        """2 / (2 + rho), powers of two here: bit for bit."""
        fed = toy.federation()
        default, given = (
            KTpFL(rho=rho, step=size).round(KTpFL().init(fed), EVERYONE, 1, fed)[0].coefficients
            for size in (None, step)
        )
        other = KTpFL(rho=rho, step=0.9 * step).round(KTpFL().init(fed), EVERYONE, 1, fed)[0].coefficients
        assert torch.equal(default, given)
        assert not torch.allclose(default, other, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("rho", [0.0, 0.1, 0.7, 2.0, 20.0, 200.0])
    def test_with_it_no_step_overshoots(self, rho: float) -> None:
        for n in (2, 5):
            logits = 2 * torch.randn(n, 30, 4, generator=torch.Generator().manual_seed(0))
            method, c = KTpFL(rho=rho, steps=1, row_weight="uniform"), uniform(n)
            objective = Divergence(log_soft_predictions(logits), torch.ones(n).double(), rho)
            start = objective.value(c)
            for _ in range(20):
                new = updated(method, logits, c)
                assert (objective.value(new) <= objective.value(c) + 1e-12).all(), n
                c = new
            assert (objective.value(c) < start).all(), n

    def test_divergence_weight_is_the_size_of_the_cohort(self) -> None:
        logits = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
        default, given, other = (updated(KTpFL(divergence_weight=weight), logits) for weight in (None, 3.0, 5.0))
        assert torch.equal(default, given)
        assert not torch.equal(default, other)

    def test_row_weight(self) -> None:
        logits = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
        cohort = (11, 3, 12)  # with 20, 16 and 9 images
        by_data, equal = (updated(KTpFL(row_weight=of), logits, cohort=cohort) for of in ("data", "uniform"))
        for row, images in enumerate((20, 16, 9)):  # a row of its own lambda a_n, lambda 3
            alone = updated(KTpFL(row_weight="uniform", divergence_weight=9 * images / 45), logits)
            assert torch.allclose(by_data[row], alone[row], rtol=0, atol=1e-14)
        # A client with little data is pulled harder toward 1/N.
        assert by_data[0, 0] > equal[0, 0]
        assert by_data[2, 2] < equal[2, 2]

    @pytest.mark.parametrize("update", ["eg", "pgd", "softmax", "exact"])
    def test_the_matrix_finds_similar_clients(self, update: str) -> None:
        logits = 3 * torch.randn(2, 50, 4, generator=torch.Generator().manual_seed(0))
        logits = torch.stack([logits[0], logits[1], logits[0] + 0.1, logits[1] * 1.05])
        c = None
        for _ in range(10):
            c = updated(KTpFL(update=update, step=0.1, rho=0.7, row_weight="uniform"), logits, c)
        assert all(c[n, n ^ 2] > 2 * c[n, n ^ 1] for n in range(4))


@cache
def linear_of(pixels: int) -> Any:
    """Return what builds models; one for all methods, so that each architecture is measured once."""
    return lambda architecture: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))


class TestTraffic:
    @staticmethod
    def record(name: str, transport: str, channels: int, size: int) -> RoundRecord:
        toys = toy.federation(4)
        images = torch.zeros(3000, channels, size, size, dtype=torch.uint8)
        split = replace(toys.clients[0].train, inputs=images[:3], labels=torch.tensor([0, 1, 9]))
        clients = tuple(replace(c, train=split, validation=split, test=split) for c in toys.clients)
        fed = toy.again(
            toys,
            clients=clients,
            public=images,
            public_batch_size=3000,
            classes=10,
            build=linear_of(channels * size * size),
            public_transport=transport,
            distillation=Distillation(batch_size=3000),
        )
        run: Run = engine.run(create(name), fed, Schedule(rounds=1, participation=0.5))
        return run.history[0]

    @pytest.mark.parametrize(
        ("name", "transport", "channels", "size", "public"),
        [
            ("kt_pfl", "float32", 1, 28, 9_408_000),
            ("kt_pfl", "uint8", 3, 32, 9_216_000),
            ("kt_pfl", "indices", 3, 32, 12_000),
            ("kt_pfl", "float32", 3, 32, 36_864_000),
            *((name, "uint8", 1, 28, 2_352_000) for name in EXCHANGES[2:]),
        ],
    )
    def test_exact_bytes(self, name: str, transport: str, channels: int, size: int, public: int) -> None:
        record = self.record(name, transport, channels, size)
        assert len(record.cohort) == 2
        assert record.traffic == {
            "knowledge_up": [120_000, 120_000],
            "knowledge_down": [120_000, 120_000],
            "parameters_up": [0, 0],
            "parameters_down": [0, 0],
            "public_down": [public, public],
        }

    def test_distilled_loss_is_torchs(self) -> None:
        """The reported loss of an epoch without steps is the KL over the whole public batch."""
        fed = toy.federation(distillation=Distillation(batch_size=5, learning_rate=0.0, batch_norm="frozen"))
        upload = exchange.train_and_predict(fed, fed.initial_models(), EVERYONE, 1)
        soft = soft_predictions(upload.logits)
        teachers = mix_teachers(uniform(5), soft)
        exchange.teach(fed, PersonalState(upload.models), upload, teachers, 1)
        for n, teacher, own in zip(EVERYONE, teachers, soft, strict=True):
            expected = F.kl_div(own.log(), teacher, reduction="batchmean").item()
            assert fed.current.losses["distill"][n] == pytest.approx(expected, abs=1e-6)
