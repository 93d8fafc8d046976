"""CUDA graphs on a stand-in that records and replays: eager training to the bit, and a line where it stays eager."""

import gc
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import devices
import pytest
import recorded
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import graphs, operations
from ktpfl_pipeline.core.client.graphs import Graph, Graphs, Objective
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import DivergedError
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute, Distillation, LocalTraining
from ktpfl_pipeline.core.training.recipe import RateSchedule
from ktpfl_pipeline.methods import METHODS, create

EAGER = {"fd": {"fd.train_client"}, "fml": {"fml.train_pair"}, "fedkd": {"fedkd.train_pair"}}
"""What is left to eager training on clients, by method."""
KINDS = list({preset.kind: name for name, preset in reversed(METHODS.items())}.values())
SERVER = {"fedtgp.train_generator", "fedgh.train_head", "fedgen.train_generator"}
TWO_EPOCHS = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)
FORMATS = {"float32": Compute("cpu"), **{name: toy.ARITHMETICS[name] for name in ("bfloat16", "channels_last")}}
RECIPES: dict[str, dict[str, Any]] = {
    "rates": {"schedule": RateSchedule("cosine", warm_up=1), "augmentation": ({"flip": {}},)},
    "momentum": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.001, "optimizer_state": "kept"},
    "adam": {"optimizer": "adam", "optimizer_state": "kept", "clip": 1.0, "schedule": RateSchedule("step", every=1)},
}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.stand_in(monkeypatch)


def run(fed: Federation, method: str = "kt_pfl", rounds: int = 2) -> tuple[Any, Any]:
    """Return the records without their seconds, and the state, of a run with some clients in each round."""
    found = engine.run(create(method), fed, Schedule(rounds, participation=0.6, evaluate_every=rounds))
    return [replace(record, seconds={}) for record in found.history], found.state


def graphed(fed: Federation) -> Federation:
    return toy.again(fed, compute=replace(fed.compute, graphs=True))


def graphs_of(fed: Federation) -> Graphs:
    return fed.executor.workspace(fed).graphs  # type: ignore[attr-defined, no-any-return]


def test_graphs_go_with_their_workspace() -> None:
    """Nothing in them holds it: their memory is free when it is."""
    space = Workspace(graphed(toy.alike("both")))
    operations.train(space, 3, space.setting.initial_models()[3], 1)
    assert len(space.graphs) == 1
    found = weakref.ref(space)
    gc.disable()
    try:
        del space
        assert found() is None
    finally:
        gc.enable()


def taken(fed: Federation) -> dict[str, int]:
    """Return how many gradients were taken how, of all that was trained."""
    found: Counter[str] = Counter()
    for (_, how), number in graphs_of(fed).taken.items():
        found[how] += number
    return dict(found)


@pytest.mark.parametrize(
    ("architecture", "arithmetic"),
    [("linear", "float32"), ("conv", "bfloat16"), ("mlp", "bfloat16"), ("both", "channels_last"), ("both", "float32")],
)
def test_graphs_are_eager_training_to_the_bit(architecture: str, arithmetic: str) -> None:
    """Training and distillation of several clients of an architecture over rounds, with BatchNorm and dropout."""
    fed = toy.alike(architecture, training=TWO_EPOCHS, compute=FORMATS[arithmetic])
    other = graphed(fed)
    assert toy.same(run(other), run(fed))
    assert len(graphs_of(other)) == 2  # one for each loss
    assert taken(other).keys() == {"replayed", "short"}
    assert taken(other)["replayed"] > 20


@pytest.mark.parametrize("recipe", RECIPES)
def test_steps_are_free_to_change(recipe: str) -> None:
    """Rates by the round, momenta, moments that clients keep, clipping, and images changed at random."""
    training = LocalTraining(epochs=2, batch_size=8, learning_rate=0.05, label_smoothing=0.1, **RECIPES[recipe])
    fed = toy.federation(training=training, distillation=Distillation(1, 8, 0.05, batch_norm="train"), rounds=3)
    other = graphed(fed)
    assert toy.same(run(other, rounds=3), run(fed, rounds=3))
    assert taken(other).keys() == {"replayed", "short"}


@pytest.mark.parametrize("method", KINDS)
def test_every_method(method: str) -> None:
    """The first preset of each class: others differ in numbers."""
    fed = devices.federation(method, dropout=True)
    other = graphed(fed)
    assert toy.same(devices.rounds(method, other), devices.rounds(method, fed))
    eager = {name for name, how in graphs_of(other).taken if how == "eager"}
    assert eager - SERVER == EAGER.get(method, set())
    assert ("replayed" in taken(other)) == (method not in EAGER)


def skip_the_batch(self: Any, tensors: Any) -> Any:
    self._graph.replay()
    return self._value.clone(), self._gradients


def skip_one_tensor(self: Any, tensors: Any) -> Any:
    self._tensors[0].copy_(tensors[0])
    return skip_the_batch(self, tensors)


@pytest.mark.parametrize("mutant", [skip_the_batch, skip_one_tensor])
def test_a_batch_that_is_not_copied_shows(mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fed = toy.alike("linear")
    monkeypatch.setattr(Graph, "replay", mutant)
    assert not toy.same(run(graphed(fed)), run(fed))


def test_a_graph_that_is_not_replayed_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "replay", lambda self, tensors: (self._value.clone(), self._gradients))
    with pytest.raises(DivergedError):
        run(graphed(toy.alike("linear")))


def test_a_capture_that_leaves_traces_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up moves running statistics and draws masks."""
    fed = toy.alike("both")
    expected = run(fed)
    monkeypatch.setattr(graphs, "kept", lambda modules, device: torch.enable_grad())
    assert not toy.same(run(graphed(fed)), expected)


def test_a_mode_of_batch_norm_has_a_graph_of_its_own() -> None:
    fed = graphed(toy.alike("conv"))
    space = Workspace(fed)
    module = space.module(3, fed.initial_models()[3])
    objective = Objective(squares, (module,), lambda batch: (fed.by_id[3].train.inputs[batch].float(),))
    for mode in (True, False, True):
        module.train(mode)
        space.graphs.gradients(objective, torch.arange(8), list(module.parameters()), 8)
    assert len(space.graphs) == 2


def squares(module: nn.Module, inputs: Tensor) -> Tensor:
    return module(inputs).square().mean()


def test_an_objective_knows_its_arguments_only() -> None:
    def loss(inputs: Tensor) -> Tensor:
        return inputs.sum() * seen

    seen = 2.0
    with pytest.raises(TypeError, match="loss is a closure"):
        Objective(loss, (), lambda batch: (batch,))


class Branching(nn.Linear):
    """Looks at its numbers, as a graph cannot."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs.flatten(1))
        return found if found.sum() > 0 else 2 * found


class Drawing(nn.Linear):
    """Draws on the CPU, which a graph does not repeat."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs.flatten(1))
        return found * float(torch.rand(1).numpy()[0]) if self.training else found


@pytest.mark.parametrize(
    ("kind", "reason"), [(Branching, "operation not permitted when stream is capturing"), (Drawing, "draws on the CPU")]
)
def test_what_cannot_be_captured_runs_eagerly_and_says_so_once(
    kind: type[nn.Linear], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    fed = toy.alike("linear", build=lambda name: kind(64, toy.CLASSES))
    other = graphed(fed)
    with caplog.at_level(logging.WARNING):
        assert toy.same(run(other, "fedavg"), run(fed, "fedavg"))
    assert taken(other).keys() == {"eager", "short"}
    (line,) = {record.getMessage() for record in caplog.records if "graphs" in record.getMessage()}
    assert line.startswith("compute.graphs has no effect on private.cross_entropy, which cannot be captured: ")
    assert reason in line
    assert len([record for record in caplog.records if record.getMessage() == line]) == 1


def test_stacked_clients_are_eager_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    fed = toy.alike("linear", compute=Compute("cpu", graphs=True), executor=StackedExecutor(5))
    run(fed, "fedavg")
    assert taken(fed).keys() == {"eager"}
    assert [record.getMessage() for record in caplog.records] == [
        "compute.graphs has no effect on stacked clients: they are one computation already."
    ]


def test_there_are_no_more_graphs_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(graphs, "LIMIT", 1)
    fed = toy.federation()
    other = graphed(fed)
    assert toy.same(run(other), run(fed))
    assert len(graphs_of(other)) == 1
    assert "there are 1 graphs already" in caplog.text


def test_no_effect_without_a_gpu(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(graphs, "DEVICE", "cuda")
    fed = graphed(toy.alike("linear"))
    run(fed, "fedavg")
    assert graphs_of(fed).taken == {}
    assert [record.getMessage() for record in caplog.records] == [
        "compute.graphs has no effect on cpu: graphs are CUDA's, for compute.device auto or cuda."
    ]


class TestStandIn:
    def test_a_capture_computes_nothing_that_stays(self) -> None:
        given, statistic, graph = torch.ones(2), torch.zeros(2), recorded.CUDAGraph()
        with recorded.on(recorded.Stream()), recorded.Capture(graph, []):
            found = given * 2
            statistic += found
        assert found.isnan().all()
        assert statistic.tolist() == [0.0, 0.0]
        given.fill_(3.0)
        graph.replay()
        assert (found.tolist(), statistic.tolist()) == ([6.0, 6.0], [6.0, 6.0])

    def test_graphs_of_one_pool_forget(self) -> None:
        pool: list[Any] = []
        one, other, found = recorded.CUDAGraph(), recorded.CUDAGraph(), []
        for graph in (one, other):
            with recorded.on(recorded.Stream()), recorded.Capture(graph, pool):
                found.append(torch.ones(2) * 2)
        one.replay()
        other.replay()
        assert [part.isnan().all().item() for part in found] == [True, False]

    def test_what_was_not_warmed_up_is_not_captured(self) -> None:
        recorded.Stream.warm = False
        with pytest.raises(RuntimeError, match="warm-up"):
            recorded.Capture(recorded.CUDAGraph(), [])
