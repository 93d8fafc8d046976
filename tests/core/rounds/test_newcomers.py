"""Clients that were held out of training: who they are, what each method gives them, and that nothing else changes."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.metrics import Newcomers
from ktpfl_pipeline.core.rng import drawn
from ktpfl_pipeline.core.rounds.newcomers import held_out, judge
from ktpfl_pipeline.core.settings import Distillation
from ktpfl_pipeline.core.weights import select, wire_bytes
from ktpfl_pipeline.methods import METHODS, create

ROUNDS = 2
WAYS = {(preset.kind.join, preset.kind.one_architecture): name for name, preset in reversed(METHODS.items())}
"""One method for each way to join: the first of the registry."""


def parted(name: str, **settings: Any) -> tuple[Any, Federation, Federation]:
    """Return a method, a federation of five clients, and that of the first three of them."""
    method = create(name)
    whole = toy.federation_for(method, rounds=ROUNDS, **settings)
    return method, whole, toy.again(whole, clients=whole.clients[:3])


@cache
def joined(name: str, **settings: Any) -> tuple[Newcomers, Any, Federation, Federation]:
    method, whole, fed = parted(name, **settings)
    done = engine.run(method, fed, Schedule(ROUNDS, evaluate_every=ROUNDS))
    return judge(method, done.state, fed, whole.clients[3:], (1, 2)), done, whole, fed


def accuracies(fed: Federation, models: Any) -> list[float]:
    return [found.accuracy for found in fed.evaluate(models, "test").values()]


class TestWho:
    def test_round_share_of_them(self) -> None:
        for share, number in {0.0: 0, 0.05: 1, 0.2: 4, 0.93: 19}.items():
            found = held_out(range(20), share, 0)
            assert (len(found), found) == (number, sorted(set(found))), share

    def test_are_drawn_by_seed_and_not_by_order_and_not_as_adversaries_are(self) -> None:
        found = [held_out(range(20), 0.2, seed) for seed in range(5)]
        assert len(set(map(tuple, found))) == 5
        assert held_out(reversed(range(20)), 0.2, 0) == found[0] != drawn("adversaries", 0.2, range(20), 0)
        assert set(found[0]) < set(held_out(range(20), 0.4, 0))

    @pytest.mark.parametrize(("share", "number"), [(0.01, 0), (0.99, 20)])
    def test_nobody_and_everybody_are_refused(self, share: float, number: int) -> None:
        with pytest.raises(InputError, match=f"newcomers is {share}, which is {number} of 20 clients"):
            held_out(range(20), share, 0)


class TestJudge:
    @pytest.mark.parametrize("name", WAYS.values())
    def test_every_method_takes_newcomers_and_changes_nothing_of_the_others(self, name: str) -> None:
        found, done, whole, fed = joined(name)
        assert found.clients == [client.id for client in whole.clients[3:]]
        assert {e: len(values) for e, values in found.accuracy.items()} == {0: 2, 1: 2, 2: 2}
        assert {e: len(values) for e, values in found.there.items()} == {0: 3, 1: 3, 2: 3}
        method = create(name)
        personal = method.personal(done.state, fed.by_id, fed)
        adapted = {e: accuracies(fed, method.adapt(done.state, personal, e, fed)) for e in (1, 2)}
        assert found.there == {0: accuracies(fed, personal), **adapted}
        assert sum(found.traffic.values()) > 0

    def test_of_local_only_begin_with_initial_models(self) -> None:
        found, _, whole, _ = joined("local")
        start = select(whole.initial_models(), found.clients)
        assert found.accuracy == {e: accuracies(whole, whole.fine_tune(start, e)) for e in (0, 1, 2)}
        assert sum(found.traffic.values()) == 0

    @pytest.mark.parametrize(("name", "entry"), [("fedavg", "model"), ("pfedme", "common"), ("ditto", "common")])
    def test_of_a_common_model_begin_with_it(self, name: str, entry: str) -> None:
        found, done, whole, _ = joined(name)
        common = getattr(done.state, entry)
        start = dict.fromkeys(found.clients, common)
        assert found.accuracy == {e: accuracies(whole, whole.fine_tune(start, e)) for e in (0, 1, 2)}
        assert found.traffic["parameters_down"] == sum(found.traffic.values()) == 2 * wire_bytes(common)

    def test_of_per_fedavg_and_of_a_fine_tuned_method_are_judged_as_those_that_were_there(self) -> None:
        for name in ("per_fedavg", "fedavg_ft"):
            found, done, whole, fed = joined(name)
            method = create(name)
            model = dict.fromkeys(found.clients, done.state.model)
            start = whole.fine_tune(model) if name == "fedavg_ft" else method.personal(done.state, model, whole)
            assert found.accuracy[0] == accuracies(whole, start), name
            after = whole.fine_tune(model if name == "fedavg_ft" else start, 1)  # one epoch, not one more than E
            assert found.accuracy[1] == accuracies(whole, after), name
            there = method.personal(done.state, fed.by_id, fed)
            assert found.there[0] == accuracies(fed, there), name
            before = dict.fromkeys(there, done.state.model) if name == "fedavg_ft" else there
            assert found.there[1] == accuracies(fed, fed.fine_tune(before, 1)), name
            assert found.traffic["parameters_down"] == 2 * wire_bytes(done.state.model)

    def test_of_fedrep_have_the_body_and_an_initial_head_of_which_only_the_body_travels(self) -> None:
        found, done, whole, _ = joined("fedrep")
        model = {**whole.initial_model(whole.architecture), **done.state.common}
        assert found.accuracy[0] == accuracies(whole, dict.fromkeys(found.clients, model))
        assert found.traffic["parameters_down"] == 2 * wire_bytes(done.state.common)

    def test_of_feddf_have_the_prototype_of_their_architecture_or_the_initial_model(self) -> None:
        found, done, whole, _ = joined("feddf", architectures=("linear", "linear", "mlp", "conv", "linear"))
        start = {12: whole.initial_model("conv"), 20: done.state.prototypes["linear"]}
        assert found.accuracy[0] == accuracies(whole, start)

    def test_of_fedproto_train_toward_the_prototypes_with_weight_0_alone(self) -> None:
        alone, head = joined("local")[0], create("fedproto", {"prediction": "head"})
        whole = toy.federation_for(head, rounds=ROUNDS)
        fed = toy.again(whole, clients=whole.clients[:3])
        taught = engine.run(head, fed, Schedule(ROUNDS, evaluate_every=ROUNDS))
        guided = judge(head, taught.state, fed, whole.clients[3:], (1, 2))
        assert guided.accuracy[0] == alone.accuracy[0]
        method = replace(head, weight=0.0)
        done = engine.run(method, fed, Schedule(ROUNDS))
        assert judge(method, done.state, fed, whole.clients[3:], (1, 2)).accuracy == alone.accuracy
        models = select(whole.initial_models(), guided.clients)
        toward = head.settle(taught.state, models, 2, whole)
        plain = whole.fine_tune(models, 2)
        assert any(not torch.equal(toward[n][name], plain[n][name]) for n in models for name in models[n])

    def test_of_fedmd_distil_the_mean_of_all_predictions_once_more_as_often_as_the_others_did(self) -> None:
        recipe = Distillation(epochs=3, batch_size=8, learning_rate=0.05)
        found, done, whole, fed = joined("fedmd", distillation=recipe)
        batch = whole.public_batch(ROUNDS)
        mean = soft_predictions(fed.logits(done.state.models, batch), recipe.temperature).mean(dim=0)
        start = select(whole.initial_models(), found.clients)
        taught = toy.again(whole, distillation=replace(recipe, epochs=ROUNDS * 3)).distill(
            start, mean.expand(2, *mean.shape), batch, 0
        )
        assert found.accuracy == {e: accuracies(whole, whole.fine_tune(taught, e)) for e in (0, 1, 2)}
        prediction = 4 * len(batch) * whole.classes
        assert (found.traffic["knowledge_up"], found.traffic["knowledge_down"]) == (3 * prediction, 2 * prediction)

    def test_of_kt_pfl_learn_a_row_in_which_the_others_are_not_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, whole, fed = parted("kt_pfl")
        method = create("kt_pfl", {"rho": 0.1})
        done = engine.run(method, fed, Schedule(ROUNDS))
        script: list[torch.Tensor] = []
        everyone = toy.again(whole)
        monkeypatch.setattr(
            type(everyone), "distill", lambda self, models, teachers, batch, t: script.append(teachers) or models
        )
        newcomers = [client.id for client in whole.clients[3:]]
        method.join(done.state, done.state.models, newcomers, everyone)
        batch, start = whole.public_batch(ROUNDS), select(whole.initial_models(), newcomers)
        uploads, own = whole.logits(done.state.models, batch), whole.logits(whole.fine_tune(start, 2), batch)
        for row, teacher in enumerate(script[0]):
            soft = soft_predictions(torch.cat([uploads, own[row : row + 1]]))
            weights = torch.linalg.lstsq(soft.flatten(1).T, teacher.flatten()).solution  # a mixture of these four
            assert weights.sum() == pytest.approx(1.0)
            assert (soft.flatten(1).T @ weights - teacher.flatten()).abs().max() < 1e-9
            assert weights[3] > 1.2 / 4  # its own predictions are the nearest to it
            assert weights.min() >= -1e-9

    def test_workers_give_what_serial_gives(self) -> None:
        one, (method, whole, fed) = joined("kt_pfl")[0], parted("kt_pfl")
        workers = ProcessesExecutor(2)
        try:
            fed = toy.again(fed, executor=workers)
            done = engine.run(method, fed, Schedule(ROUNDS))
            assert judge(method, done.state, fed, whole.clients[3:], (1, 2)) == one
        finally:
            workers.close()
