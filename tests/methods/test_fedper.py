"""FedPer, FedBN and FedBABU: which part is trained, which is averaged, and what a client keeps."""

from typing import Any

import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.fedbabu import FedBABU
from ktpfl_pipeline.methods.local import Local

EVERYONE, COHORT = list(toy.IDS), [3, 12, 20]
HEAD, NORM = {"4.weight", "4.bias"}, {f"1.{key}" for key in toy.build("conv")[1].state_dict()}
OWN = {"fedper": HEAD, "fedbn": NORM, "fedbabu": HEAD}


def stepped(fed: Federation, n: int, start: Params, moves: Any) -> Params:
    """Return a model after one full-batch step by autograd of the parameters whose name `moves`."""
    module, samples = toy.build("conv").double().train(), fed.by_id[n].train
    module.load_state_dict(start)
    cross_entropy(module(samples.inputs.double() / 127.5 - 1.0), samples.labels).backward()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if moves(name):
                parameter.sub_(parameter.grad, alpha=0.1)
    return dict(module.state_dict())


@pytest.mark.parametrize("name", OWN)
def test_two_rounds_against_a_plain_reimplementation(name: str) -> None:
    """One full-batch step a round; the second round starts from the common part and what each has kept."""
    fed = toy.alike("conv", dtype="float64", training=LocalTraining(epochs=1, batch_size=100, learning_rate=0.1))
    method, own = create(name), OWN[name]
    state, held = method.init(fed), {n: dict(fed.initial_model("conv")) for n in EVERYONE}
    for t, cohort in ((1, EVERYONE), (2, COHORT)):
        state, _ = method.round(state, cohort, t, fed)
        total = sum(len(fed.by_id[n].train) for n in cohort)
        trained = {n: stepped(fed, n, held[n], lambda key: name != "fedbabu" or key not in HEAD) for n in cohort}
        for key in set(held[3]) - own:
            if held[3][key].is_floating_point():
                common = sum(len(fed.by_id[n].train) / total * trained[n][key] for n in cohort)
            else:
                common = max(trained[n][key] for n in cohort)
            for n in EVERYONE:
                held[n][key] = common
        for n in cohort:
            held[n] |= {key: trained[n][key] for key in own}
    assert toy.distance(method.personal(state, EVERYONE, fed), held) < 1e-12


@pytest.mark.parametrize(("name", "numbers"), [("fedper", 40 + 16), ("fedbn", 40 + 111), ("fedbabu", 40 + 16)])
def test_only_the_common_part_travels(name: str, numbers: int) -> None:
    fed = toy.alike("conv")
    _, report = create(name).round(create(name).init(fed), COHORT, 1, fed)
    assert report.traffic == dict.fromkeys(COHORT, Traffic(parameters_up=4 * numbers, parameters_down=4 * numbers))


def test_without_batch_normalization_fedbn_is_fedavg() -> None:
    fed = toy.alike("mlp")
    runs = [engine.run(method, fed, Schedule(rounds=2, participation=0.6)) for method in (create("fedbn"), FedAvg())]
    assert toy.same(runs[0].state.common, runs[1].state.model)


def test_a_model_that_is_only_a_head_is_local_in_fedper_and_untrained_in_fedbabu() -> None:
    fed = toy.alike("linear")
    per, alone, babu = (
        engine.run(method, fed, Schedule(rounds=2)) for method in (create("fedper"), Local(), create("fedbabu"))
    )
    assert toy.same(per.state.models, alone.state.models)
    assert toy.same(babu.state.model, fed.initial_model("linear"))


def test_fedbabus_newcomers_are_sent_only_the_body() -> None:
    method, fed = FedBABU(), toy.alike("conv")
    state, report = method.round(method.init(fed), COHORT, 1, fed)
    joined = method.join(state, method.personal(state, COHORT, fed), [12, 20], fed)
    assert toy.same(joined.models, {12: state.model, 20: state.model})
    sent = {own.parameters_down for own in (*report.traffic.values(), *joined.traffic.values())}
    assert sent == {4 * (40 + 16)}


def test_fedbabus_head_stays_to_the_bit() -> None:
    fed = toy.alike("both")
    run = engine.run(create("fedbabu"), fed, Schedule(rounds=2))
    start = fed.initial_model("both")
    assert all(torch.equal(run.state.model[name], start[name]) for name in ("5.weight", "5.bias"))
    assert not torch.equal(run.state.model["0.weight"], start["0.weight"])
