"""Stacked clients: the serial result up to rounding, or, with dropout, in distribution.

That every method gets it is in the contract.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import engine, executors
from ktpfl_pipeline.core.client import stacked
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.models.gru import MeanState


@pytest.fixture
def executor() -> StackedExecutor:
    return StackedExecutor(2)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The clients of every stack that is made."""
    found: list[list[int]] = []
    make = stacked.Stack.__init__

    def watched(self: Any, space: Any, calls: Any, **settings: Any) -> None:
        found.append(list(calls))
        make(self, space, calls, **settings)

    monkeypatch.setattr(stacked.Stack, "__init__", watched)
    return found


def both(stack: int = 5, **settings: Any) -> tuple[Federation, Federation]:
    serial = toy.federation(**settings)
    return serial, toy.again(serial, executor=StackedExecutor(stack))


class TestRun:
    def test_values_losses_and_progress_are_those_of_serial(self) -> None:
        told: dict[type, list[tuple[str, int, int]]] = {}
        found = []
        for fed in both(dtype="float64"):
            seen = told.setdefault(type(fed.executor), [])
            fed.log.progress = lambda *what, seen=seen: seen.append(what)
            models = fed.initial_models()
            order = [12, 3, 20, 7, 11]  # not the order of the stacks
            trained = fed.train({n: models[n] for n in order}, 1)
            found.append((trained, fed.log.losses["train"], list(fed.log.seconds)))
        assert list(found[1][0]) == list(found[1][1]) == [12, 3, 20, 7, 11]
        assert found[1][1] == pytest.approx(found[0][1], rel=1e-12)
        assert toy.distance(found[0][0], found[1][0]) < 1e-14
        assert found[0][2] == found[1][2] == ["train"]
        assert told[StackedExecutor] == told[SerialExecutor]

    def test_no_calls_no_values(self, executor: StackedExecutor) -> None:
        fed = toy.federation(executor=executor)
        assert fed.train({}, 1) == {}
        assert fed.log.losses == {}

    def test_an_operation_without_a_stacked_form_visits_one_after_another(self, executor: StackedExecutor) -> None:
        def count(space: Any, n: int, value: int) -> Outcome[int]:
            return Outcome(value + n, torch.tensor(float(n)))

        found = executor.run(toy.federation(), "count", count, {20: (1,), 3: (2,)})
        assert (found.values, found.losses) == ({20: 21, 3: 5}, {20: 20.0, 3: 3.0})

    def test_stacks_are_of_one_architecture_and_at_most_so_many(
        self, executor: StackedExecutor, built: list[list[int]]
    ) -> None:
        """Largest first, so that clients with equally many batches are together; a single one is no stack."""
        fed = toy.alike("linear", executor=executor)
        fed.train(fed.initial_models(), 1)
        assert built == [[11, 7], [3, 20]]  # 20 and 17 images, 16 and 14; 12 has 9 and is alone
        built.clear()
        fed = toy.federation(executor=executor)  # 3, 12 linear; 7, 20 conv; 11 mlp
        fed.train(fed.initial_models(), 1)
        assert sorted(built) == [[3, 12], [7, 20]]

    def test_a_single_client_is_computed_as_in_serial(self) -> None:
        serial, alone = (toy.again(fed) if i == 0 else fed for i, fed in enumerate(both(architectures=("both",))))
        one = {7: serial.initial_models()[7]}
        assert toy.same(alone.train(one, 1), serial.train(one, 1))

    def test_recurrent_models_visit_one_after_another(self, built: list[list[int]]) -> None:
        def build(name: str) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 8)), MeanState(8, 4), nn.Linear(4, 3))

        one, other = (fed.train(fed.initial_models(), 1) for fed in both(build=build))
        assert toy.same(one, other)
        assert built == []

    def test_models_of_the_server_are_those_of_serial(self) -> None:
        found = []
        for fed in both():
            models, batch = fed.initial_prototypes(), fed.public_batch(1)
            found.append(fed.fuse(models, torch.full((len(batch), 3), 1 / 3, dtype=torch.float64), batch, 1))
        assert toy.same(*found)

    def test_arguments_are_left_alone_and_models_have_memory_of_their_own(self, executor: StackedExecutor) -> None:
        fed = toy.alike("conv", executor=executor)
        models = fed.initial_models()
        before = {name: tensor.clone() for name, tensor in models[3].items()}
        trained = fed.train(models, 1)
        assert toy.same(models[3], before)
        for params in trained.values():
            for tensor in params.values():
                assert tensor.untyped_storage().nbytes() == tensor.nbytes
                assert tensor.is_contiguous()
                assert not tensor.requires_grad

    def test_global_generators_stay_where_they_are(self, executor: StackedExecutor) -> None:
        fed = toy.alike("both", executor=executor)
        before = toy.global_generators()
        engine.run(create("fedmd"), fed, Schedule(rounds=1))
        assert toy.same(toy.global_generators(), before)


class TestArithmetic:
    @pytest.mark.parametrize(
        ("dtype", "memory_format", "tolerance"),
        [("float64", "channels_last", 1e-14), ("float32", "contiguous", 1e-5), ("bfloat16", "channels_last", 0.02)],
    )
    def test_whatever_the_arithmetic(self, dtype: Any, memory_format: Any, tolerance: float) -> None:
        compute = Compute("cpu", dtype=dtype, memory_format=memory_format)
        results = [
            engine.run(create("kt_pfl"), fed, Schedule(rounds=2, evaluate_every=2)).state
            for fed in both(architectures=("conv",), compute=compute)
        ]
        assert toy.distance(*(state.models for state in results)) < tolerance
        assert torch.allclose(*(state.coefficients for state in results), rtol=0, atol=tolerance)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    @pytest.mark.parametrize("stack", [1, 5])
    def test_on_a_gpu(self, stack: int) -> None:
        """In float64, as on the CPU, one after another and stacked."""
        compute = Compute("cuda", dtype="float64")
        there = toy.alike("conv", compute=compute, executor=executors.create("auto", 1, "cuda", stack))
        here = toy.alike("conv", dtype="float64")
        one, other = (engine.run(create("kt_pfl"), fed, Schedule(rounds=2)).state.models for fed in (there, here))
        on_cpu = {n: {name: tensor.cpu() for name, tensor in params.items()} for n, params in one.items()}
        assert toy.distance(on_cpu, other) < 1e-10


class TestDropout:
    """Other masks than in serial."""

    def trained(self, seed: int = 0, stack: int = 5) -> Any:
        fed = toy.alike("both", seed=seed, executor=StackedExecutor(stack))
        models, batch = fed.initial_models(), fed.public_batch(1)
        trained = fed.train(models, 1)
        taught = fed.distill(trained, torch.full((5, len(batch), 3), 1 / 3), batch, 1)
        return trained, taught, fed.log.losses

    def test_the_same_for_the_same_seed(self) -> None:
        first = self.trained()
        torch.manual_seed(99)  # which no draw may depend on
        assert toy.same(self.trained(), first)
        assert not toy.same(self.trained(seed=1), first)

    def test_each_client_has_masks_of_its_own(self) -> None:
        """Two clients with the same images and weights, the largest batch and no shuffle between them."""
        fed = toy.alike("mlp", executor=StackedExecutor(2))
        client = fed.clients[0]
        fed = toy.again(fed, executor=StackedExecutor(2), clients=(client, type(client)(**{**vars(client), "id": 4})))
        trained = fed.train(dict.fromkeys((3, 4), fed.initial_models()[3]), 1)
        assert toy.distance({0: trained[3]}, {0: trained[4]}) > 1e-4

    def test_the_order_of_calls_changes_nothing(self) -> None:
        fed = toy.alike("both", executor=StackedExecutor(2))
        models = fed.initial_models()
        assert toy.same(fed.train(dict(reversed(models.items())), 1), fed.train(models, 1))

    def test_learns_as_serial_does(self) -> None:
        accuracies = []
        for fed in both(architectures=("both",)):
            history = engine.run(create("local"), fed, Schedule(rounds=4, evaluate_every=4)).history
            accuracies.append(sum(history[-1].accuracy["after_transfer"]) / 5)
        assert min(accuracies) > 0.75
        assert accuracies[1] == pytest.approx(accuracies[0], abs=0.1)

    def test_resume_equals_a_straight_run(self, tmp_path: Path) -> None:
        """Models; an evaluation's rounding may depend on who is evaluated with whom."""
        straight, resumed = (toy.alike("both", executor=StackedExecutor(2)) for _ in range(2))
        method, file = create("kt_pfl"), tmp_path / "run.ckpt"
        expected = engine.run(method, straight, Schedule(rounds=3, participation=0.6))
        for rounds in (1, 3):
            run = engine.run(method, resumed, Schedule(rounds, participation=0.6), checkpoint_file=file)
        assert toy.same(run.state, expected.state)


class TestCreate:
    @pytest.mark.parametrize(("workers", "device"), [("auto", "cpu"), (1, "cpu"), ("auto", "cuda")])
    def test_stacked(self, workers: Any, device: str) -> None:
        made = executors.create(workers, 2, device, 5)
        assert isinstance(made, StackedExecutor)
        assert made.clients == 5

    def test_several_workers_are_refused(self) -> None:
        with pytest.raises(
            InputError, match=r"compute\.workers is 3, but compute\.stacked is 5, .*; take auto or 1\.$"
        ):
            executors.create(3, 1, "cpu", 5)
