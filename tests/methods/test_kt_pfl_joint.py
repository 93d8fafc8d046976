"""KT-pFL (joint): a round by hand, its limits, and what travels."""

from dataclasses import dataclass, replace

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Models, Params, select, wire_bytes
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint, KTpFLJointState

EVERYONE = list(toy.IDS)


def combined(parts: list[tuple[float, Params]]) -> Params:
    """Return a weighted sum of models."""
    return {name: sum(a * model[name] for a, model in parts) for name in parts[0][1]}  # type: ignore[misc]


def test_models_weigh_by_squared_overlap_and_by_data() -> None:
    common = torch.tensor([[1.0, 0.5], [0.0, 0.0]], dtype=torch.float64)
    shares = torch.tensor([0.25, 0.75], dtype=torch.float64)
    expected = torch.tensor([[4 / 7, 3 / 7], [0.25, 0.75]], dtype=torch.float64)  # 0.25 to 0.1875; shares of the data
    assert torch.allclose(KTpFLJoint().weights(common, shares), expected, rtol=0, atol=1e-15)


def test_a_round_is_that_of_a_plain_implementation() -> None:
    """The second round, in which clients start from mixtures."""
    fed = toy.federation(architectures=("linear", "mlp"), dtype="float64")
    method = KTpFLJoint(start_share=0.5, memory=0.2)
    before, first = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(before, EVERYONE, 2, fed)
    # the first round: nothing is mixed yet, and each client uses its trained model
    assert toy.same(first.after_local, fed.train(fed.initial_models(), 1))
    assert toy.same(before.models, first.after_local)
    labels = dict(zip(EVERYONE, fed.logits(first.after_local, fed.public_batch(1), 1).softmax(-1).mean(1), strict=True))
    starts: Models = {}
    own_weights: list[float] = []
    for group in ([3, 11, 20], [7, 12]):
        sizes = {m: len(fed.by_id[m].train) for m in group}
        for n in group:
            common = {m: sizes[m] * float(torch.minimum(labels[n], labels[m]).sum()) ** 2 for m in group}
            own_weights.append(common[n] / sum(common.values()))
            starts[n] = combined([(common[m] / sum(common.values()), before.taught[m]) for m in group])
    trained = fed.train({n: starts[n] for n in EVERYONE}, 2)
    assert first.metrics == {}, "the server had no model yet"
    assert report.metrics == {"own_weight": pytest.approx(sum(own_weights) / 5, abs=1e-12)}
    assert toy.distance(report.after_local, trained) < 1e-12
    assert toy.distance(after.taught, taught(fed, before.coefficients, trained)) < 1e-12
    # z = 1 + 0.2: (0.2 u + w + 0.5 (v - w)) / 1.2
    expected = {n: combined([(1 / 6, before.models[n]), (5 / 12, trained[n]), (5 / 12, starts[n])]) for n in EVERYONE}
    assert toy.distance(after.models, expected) < 1e-12


def test_a_model_is_the_mean_of_all_rounds_weighted_by_their_age() -> None:
    fed, method = (
        toy.federation(architectures=("linear", "mlp"), dtype="float64"),
        KTpFLJoint(start_share=0.0, memory=0.5),
    )
    state, trained = method.init(fed), list[Models]()
    for t in (1, 2, 3):
        state, report = method.round(state, EVERYONE, t, fed)
        trained.append(report.after_local)
    expected = {n: combined([(w / 7, past[n]) for w, past in zip((1, 2, 4), trained, strict=True)]) for n in EVERYONE}
    assert toy.distance(state.models, expected) < 1e-12


def taught(fed: Federation, c: Tensor, trained: Models) -> Models:
    """Return the models after distillation in round 2 from geometric means of all predictions with weights c."""
    batch = fed.public_batch(2)
    soft = fed.logits(trained, batch, 2).softmax(dim=-1)
    products = torch.stack([torch.stack([s**w for s, w in zip(soft, row, strict=True)]).prod(dim=0) for row in c])
    return fed.distill(trained, products / products.sum(dim=-1, keepdim=True), batch, 2)


@dataclass(frozen=True)
class Geometric(KTpFL):
    """KT-pFL with the teachers of KT-pFL (joint)."""

    title = "KT-pFL, geometric mean"
    teachers = KTpFLJoint.teachers  # type: ignore[assignment]


def test_clients_of_different_architectures_have_kt_pfl_s_trained_models() -> None:
    fed = toy.federation(3, dtype="float64")
    exact = KTpFLJoint(start_share=0.0, memory=0.0)
    joint = engine.run(exact, toy.again(fed), Schedule(rounds=2)).state
    method, again = Geometric(), toy.again(fed)
    first, _ = method.round(method.init(again), EVERYONE[:3], 1, again)
    plain, report = method.round(first, EVERYONE[:3], 2, again)
    assert toy.distance(joint.models, report.after_local) < 1e-14
    assert toy.distance(joint.taught, plain.models) < 1e-14
    assert torch.allclose(joint.coefficients, plain.coefficients, rtol=0, atol=1e-14)


@pytest.fixture
def distinct() -> tuple[Federation, KTpFLJointState]:
    """Return clients of one architecture, and a state in which all their models differ."""
    fed = toy.alike("mlp", dtype="float64")
    return fed, KTpFLJoint().round(KTpFLJoint().init(fed), EVERYONE, 1, fed)[0]


def test_clients_with_equal_labels_start_from_the_average(distinct: tuple[Federation, KTpFLJointState]) -> None:
    fed, state = distinct
    alike = replace(state, labels=torch.full((5, 3), 1 / 3, dtype=torch.float64))
    average = fed.average(state.taught)
    assert toy.distance(KTpFLJoint().starts(alike, EVERYONE, fed)[0], dict.fromkeys(EVERYONE, average)) < 1e-12


def test_clients_without_common_labels_start_from_their_own_model(
    distinct: tuple[Federation, KTpFLJointState],
) -> None:
    fed, state = distinct
    apart = replace(state, labels=torch.eye(5, dtype=torch.float64))
    assert toy.distance(KTpFLJoint().starts(apart, EVERYONE, fed)[0], state.taught) < 1e-12


def test_a_client_that_never_took_part_starts_from_the_average() -> None:
    fed, method = toy.federation(architectures=("linear", "mlp")), KTpFLJoint()
    state, _ = method.round(method.init(fed), [3, 11], 1, fed)  # both linear
    found = method.personal(state, EVERYONE, fed)
    assert toy.distance({20: found[20]}, {20: fed.average({n: state.taught[n] for n in (3, 11)})}) < 1e-6
    assert all(toy.same(found[n], fed.initial_models()[n]) for n in (7, 12))
    assert all(found[n] is state.models[n] for n in (3, 11))
    after, report = method.round(state, [7, 20], 2, fed)
    assert toy.same({20: report.after_local[20]}, fed.train({20: found[20]}, 2))
    assert toy.same({20: after.models[20]}, {20: report.after_local[20]})  # its first round
    absent = fed.rows([3, 11, 12])
    assert torch.equal(after.labels[absent], state.labels[absent])
    assert all(after.taught[n] is state.taught[n] for n in (3, 11))
    assert 12 not in after.taught


def test_newcomers_are_sent_the_average_of_their_architecture_and_learn() -> None:
    fed, method = toy.federation(architectures=("linear", "mlp")), KTpFLJoint()
    state, _ = method.round(method.init(fed), [3, 7, 11], 1, fed)
    there = method.personal(state, [3, 7, 11], fed)
    sent = method.sent_first(there, [12, 20], fed)
    assert toy.same(sent[12], there[7])
    assert toy.distance({20: sent[20]}, {20: fed.average({n: there[n] for n in (3, 11)})}) < 1e-7
    joined = method.join(state, there, [12, 20], replace(fed, rounds=1))
    assert {n: joined.traffic[n].parameters_down for n in (12, 20)} == {n: wire_bytes(sent[n]) for n in (12, 20)}
    assert not any(toy.same(joined.models[n], sent[n]) for n in (12, 20))


def test_bytes_are_kt_pfls_and_a_model_each_way() -> None:
    fed = toy.federation()
    _, report = KTpFLJoint().round(KTpFLJoint().init(fed), [3, 7], 1, fed)
    _, plain = KTpFL().round(KTpFL().init(fed), [3, 7], 1, fed)
    for n, traffic in report.traffic.items():
        size = wire_bytes(report.after_local[n])
        assert traffic == replace(plain.traffic[n], parameters_up=size, parameters_down=size)


def test_no_client_needs_validation_samples() -> None:
    fed = toy.federation()
    clients = tuple(replace(client, validation=client.validation.take(torch.arange(0))) for client in fed.clients)
    state = engine.run(KTpFLJoint(), toy.again(fed, clients=clients), Schedule(rounds=2)).state
    assert toy.same(state.models, engine.run(KTpFLJoint(), toy.again(fed), Schedule(rounds=2)).state.models)


def test_adaptation_is_the_local_part_of_the_next_round() -> None:
    """From the start that the server would send, into the running mean; who never took part trains its own model."""
    fed = toy.federation(architectures=("linear", "mlp"), dtype="float64")
    method, cohort = KTpFLJoint(memory=0.2), EVERYONE[:3]
    state, _ = method.round(method.init(fed), cohort, 1, fed)
    models = method.personal(state, EVERYONE, fed)
    starts, _ = method.starts(state, EVERYONE, fed)
    trained = fed.fine_tune({n: starts[n] if n in cohort else models[n] for n in EVERYONE}, 2)
    # z = 1 + 0.2: (0.2 u + w + 0.25 (v - w)) / 1.2
    parts = {n: [(1 / 6, models[n]), (0.75 / 1.2, trained[n]), (0.25 / 1.2, starts[n])] for n in cohort}
    expected = trained | {n: combined(parts[n]) for n in cohort}
    assert toy.distance(method.adapt(state, models, 2, fed), expected) < 1e-12
    assert toy.distance(select(expected, cohort), fed.fine_tune(select(models, cohort), 2)) > 1e-3


def test_two_clients_of_one_architecture_can_compute_each_others_model() -> None:
    """docs/privacy.md: v_n is a mixture of two, so that h_m = (v_n - d_nn h_n) / (1 - d_nn)."""
    fed, method = toy.federation(2, architectures=("linear",), dtype="float64"), KTpFLJoint()
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    starts, weights = method.starts(state, [3, 7], fed)
    for n, m, own in zip((3, 7), (7, 3), map(float, weights), strict=True):
        computed = combined([(1 / (1 - own), starts[n]), (-own / (1 - own), state.taught[n])])
        assert toy.distance({m: computed}, {m: state.taught[m]}) < 1e-12
