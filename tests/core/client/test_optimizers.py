"""Recipes on one client: torch's own optimizers over whole runs, what their state is, and what stays plain."""

from itertools import count
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.recipe import RateSchedule
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.weights import Params, params_of

N, ROUNDS = 7, 3  # the client with 17 training images; in batches of 8: 8+9
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "decay": {"weight_decay": 0.01},
    "clipped": {"clip": 0.3},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "clip": 0.5},
    "adam": {"optimizer": "adam", "weight_decay": 0.01, "schedule": RateSchedule("cosine", warm_up=1)},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "schedule": RateSchedule("step", every=1), "clip": 0.5},
}
STATEFUL = ("momentum", "nesterov", "adam", "adamw")
TORCHS: dict[str, Any] = {
    "plain": torch.optim.SGD,
    "decay": lambda p, lr: torch.optim.SGD(p, lr, weight_decay=0.01),
    "clipped": torch.optim.SGD,
    "momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
    "nesterov": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p, lr: torch.optim.Adam(p, lr, weight_decay=0.01),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.1),
}
RATES = {"adam": [0.05, 0.1, 0.05], "adamw": [0.1, 0.01, 0.001]}


def by_hand(name: str, fed: Any, kept: bool) -> Params:
    """Return client N's linear model after the rounds, trained as torch's documentation says."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    module.load_state_dict(fed.initial_models()[N])
    own, optimizer = fed.by_id[N].train, TORCHS[name](module.parameters(), 0.1)
    for t in range(1, ROUNDS + 1):
        optimizer = optimizer if kept else TORCHS[name](module.parameters(), 0.1)
        optimizer.param_groups[0]["lr"] = RATES.get(name, [0.1] * ROUNDS)[t - 1]
        shuffle = fed.stream("private shuffle", t, N)
        for _ in range(fed.training.epochs):
            for batch in sgd.batches(len(own), 8, shuffle):
                optimizer.zero_grad()
                F.cross_entropy(module(own.inputs[batch].float().div_(127.5).sub_(1.0)), own.labels[batch]).backward()
                if clip := RECIPES[name].get("clip"):
                    nn.utils.clip_grad_norm_(module.parameters(), clip)
                optimizer.step()
    return params_of(module)


class TestSteps:
    @pytest.mark.parametrize(
        ("name", "state"),
        [(name, state) for name in RECIPES for state in ("reset", "kept") if state == "reset" or name in STATEFUL],
    )
    def test_are_torchs_to_the_bit(self, name: str, state: Any) -> None:
        training = LocalTraining(2, 8, 0.1, optimizer_state=state, **RECIPES[name])
        fed = toy.alike(training=training, rounds=ROUNDS)
        models = {N: fed.initial_models()[N]}
        for t in range(1, ROUNDS + 1):
            models = fed.train(models, t)
        expected = by_hand(name, fed, kept=state == "kept")
        assert toy.distance(models, {N: expected}) < (1e-7 if name == "adam" else 1e-30)  # a rate's last bit

    def test_of_distillation_have_the_same_words(self) -> None:
        """Adam's first step moves each weight by η, whatever its gradient."""
        fed = toy.alike(distillation=Distillation(1, 100, 0.05, optimizer="adam", schedule=RateSchedule(warm_up=1)))
        teachers = torch.softmax(torch.arange(39.0).reshape(1, 13, 3), dim=2)
        start = fed.initial_models()[3]
        after = fed.distill({3: start}, teachers, fed.public_batch(1), 1)[3]
        assert torch.allclose((after["1.weight"] - start["1.weight"]).abs(), torch.tensor(0.025), rtol=1e-3, atol=0)

    def test_label_smoothing_is_torchs(self) -> None:
        smooth = toy.alike(training=LocalTraining(1, 100, 0.1, label_smoothing=0.2))
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        module.load_state_dict(smooth.initial_models()[N])
        own = smooth.by_id[N].train
        loss = F.cross_entropy(module(own.inputs / 127.5 - 1), own.labels, label_smoothing=0.2)
        loss.backward()
        by_hand = {f"1.{key}": (p - 0.1 * p.grad).detach() for key, p in module[1].named_parameters()}
        trained = smooth.train({N: smooth.initial_models()[N]}, 1)
        assert toy.distance(trained, {N: by_hand}) < 1e-6
        assert smooth.current.losses["train"][N] == pytest.approx(loss.item(), abs=1e-6)

    def test_models_of_one_descent_are_clipped_each_by_itself(self) -> None:
        pair = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])
        parameters = list(pair.parameters())
        before = torch.cat([p.detach().flatten() for p in parameters])
        recipe = LocalTraining(clip=1.0)
        gradients = (torch.tensor([[4.0]]), torch.tensor([[0.5]]))
        sgd.step_by(sgd.make(parameters, recipe, 0.1, None), list(pair), gradients, 1.0)
        moved = before - torch.cat([p.detach().flatten() for p in parameters])
        assert moved.tolist() == pytest.approx([0.1, 0.05], abs=1e-6)

    def test_one_gradient_of_two_parameters_is_clipped_once(self) -> None:
        pair = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
        shared = torch.tensor([3.0])
        module = nn.ParameterList(pair)
        sgd.step_by(sgd.make(pair, LocalTraining(clip=1.0), 1.0, None), [module], (shared, shared), 1.0)
        assert [p.item() for p in pair] == pytest.approx([-(0.5**0.5)] * 2, abs=1e-5)


class TestState:
    def test_is_taken_and_left_as_it_is(self) -> None:
        """Two epochs at once, or one and one with the state between them, are the same; nothing given is written to."""
        fed = toy.alike(training=LocalTraining(1, 8, 0.1, optimizer="adam", optimizer_state="kept"))
        space, results = Workspace(fed), []
        start, number = fed.initial_models()[N], count()

        def loss(batch: Tensor) -> Tensor:
            next(number)
            own = fed.by_id[N].train
            return F.cross_entropy(module(own.inputs[batch] / 127.5 - 1), own.labels[batch])

        for parts in ((2,), (1, 1)):
            module, shuffle = space.module(N, start), torch.Generator().manual_seed(0)
            state: Params = {}
            for epochs in parts:
                given = space.optimizer_state = state
                copy = {name: tensor.clone() for name, tensor in given.items()}
                recipe = LocalTraining(epochs, 8, 0.1, optimizer="adam", optimizer_state="kept")
                left = sgd.descend(space, module, loss, 17, recipe, 1, shuffle).optimizer_state
                assert left is not None and toy.same(given, copy)
                state = left
            results.append((params_of(module), state))
        assert toy.same(*results)
        assert sorted(results[0][1]) == [f"{p}.{key}" for p in (0, 1) for key in ("exp_avg", "exp_avg_sq", "step")]
        assert float(results[0][1]["0.step"]) == 4

    def test_is_that_of_the_first_training_of_an_operation(self) -> None:
        """A second training starts with a fresh optimizer, whose state is not kept."""
        fed = toy.alike(training=LocalTraining(1, 8, 0.1, momentum=0.9, optimizer_state="kept"))
        space, own = Workspace(fed), fed.by_id[N].train
        module = space.module(N, fed.initial_models()[N])
        space.optimizer_state = {}
        states = [
            sgd.descend(
                space,
                module,
                lambda batch: F.cross_entropy(module(own.inputs[batch] / 127.5 - 1), own.labels[batch]),
                len(own),
                fed.training,
                1,
                torch.Generator().manual_seed(0),
            ).optimizer_state
            for _ in range(2)
        ]
        assert states[0] and states[1] is None

    def test_without_an_epoch_it_stays(self) -> None:
        fed = toy.alike(training=LocalTraining(2, 8, 0.1, momentum=0.9, optimizer_state="kept"))
        models = fed.train({N: fed.initial_models()[N]}, 1)
        left = fed.client_states.before("train", N)
        still = toy.again(fed, training=LocalTraining(0, 8, 0.1, momentum=0.9, optimizer_state="kept"))
        still.train(models, 2)
        assert toy.same(dict(still.client_states.before("train", N)), dict(left))

    def test_models_that_are_thrown_away_start_anew_and_leave_none(self) -> None:
        fed = toy.alike(training=LocalTraining(2, 8, 0.1, momentum=0.9, optimizer_state="kept"))
        models = {N: fed.initial_models()[N]}
        fresh = fed.fine_tune(models)
        fed.train(models, 1)
        left = fed.client_states.before("train", N)
        assert toy.same(fed.fine_tune(models), fresh)
        assert fed.client_states.before("train", N) is left
