"""KT-pFL on parameters and predictions together: a round by hand, its limits, and what travels."""

from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import LocalTraining
from ktpfl_pipeline.core.weights import Params, average, wire_bytes
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint
from ktpfl_pipeline.methods.kt_pfl_params import KTpFLParams
from ktpfl_pipeline.methods.shared import stepping

EVERYONE = list(toy.IDS)


def softmin_rows(models: list[Tensor], c: Tensor, shares: Tensor, rho: float, steps: int) -> Tensor:
    """Return c after exponentiated-gradient steps on λ Σ a_n ‖v_n - w_n‖² / q + ρ ‖c - 1/N‖², by autograd."""
    w, n = torch.stack(models), len(models)
    pairs = [(w[i] - w[j]).square().sum() for i in range(n) for j in range(n) if i != j]
    q = torch.stack(pairs).mean() if pairs else torch.tensor(1.0)
    for _ in range(steps):
        c = c.detach().requires_grad_()
        value = n * (shares * (c @ w - w).square().sum(1)).sum() / q + rho * (c - 1 / n).square().sum()
        (slope,) = torch.autograd.grad(value, c)
        c = (c.detach().log() - 2 / (2 + rho) * slope).softmax(dim=1)
    return c.detach()


def test_a_round_is_that_of_a_plain_implementation() -> None:
    """The second round, in which both matrices are no longer equal: mixing, teachers, distillation, step."""
    fed, method = toy.federation(architectures=("linear", "mlp"), dtype="float64"), KTpFLJoint(rho_parameters=0.5)
    before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(before, EVERYONE, 2, fed)
    trained = fed.train(before.models, 2)
    assert toy.same(report.after_local, trained)
    mixed = {}
    for group in ([3, 11, 20], [7, 12]):
        names = [name for name, tensor in trained[group[0]].items() if tensor.is_floating_point()]
        vectors = [torch.cat([trained[n][name].flatten() for name in names]) for n in group]
        at = fed.positions(group)
        d = before.mixing[at[:, None], at]
        for n, row in zip(group, d, strict=True):
            mixed[n] = {name: sum(a * trained[m][name] for a, m in zip(row, group, strict=True)) for name in names}
        expected = softmin_rows(vectors, d, fed.data_weights(group), 0.5, method.steps)
        assert torch.allclose(after.mixing[at[:, None], at], expected, rtol=0, atol=1e-12)
        assert (d - 1 / len(group)).abs().max() > 1e-3
    mixed = {n: mixed[n] for n in EVERYONE}
    kept, taught = (learned(fed, before.coefficients, models) for models in (trained, mixed))
    right = {
        length: torch.cat([answers(fed, n, stepping.between(kept[n], taught[n], length)) for n in EVERYONE])
        for length in (0.0, *stepping.LENGTHS)
    }
    tally = before.tally.clone()
    for place, length in enumerate(stepping.LENGTHS):
        tally[:, place, 0] += (right[length] & ~right[0.0]).view(5, 6).sum(1)
        tally[:, place, 1] += (~right[length] & right[0.0]).view(5, 6).sum(1)
    assert torch.equal(tally, after.tally)
    assert tally.any()
    lengths = stepping.choose(tally, 0.25)
    expected = {n: stepping.between(kept[n], taught[n], s) for n, s in zip(EVERYONE, lengths, strict=True)}
    assert toy.distance(after.models, expected) < 1e-12


def learned(fed: Federation, c: Tensor, models: dict[int, Params]) -> dict[int, Params]:
    """Return the models after each distilled, in round 2, what they all say, the sure ones squarely more."""
    batch = fed.public_batch(2)
    soft = fed.logits(models, batch, 2).softmax(dim=-1)
    votes = c[:, :, None] * soft.max(dim=-1).values[None] ** 2  # student, teacher, sample
    teachers = torch.einsum("nmb,mbk->nbk", votes / votes.sum(1, keepdim=True), soft)
    return fed.distill(models, teachers, batch, 2)


def answers(fed: Federation, n: int, params: Params) -> Tensor:
    """Return which of its six validation samples client n's model classifies correctly."""
    samples = fed.by_id[n].validation
    return by_hand.module(fed, n, params).eval()(by_hand.pixels(samples)).argmax(dim=1) == samples.labels


def test_who_goes_nowhere_has_the_model_of_kt_pfl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "choose", lambda tally, pooling: [0.0] * len(tally))
    fed = toy.federation(architectures=("linear", "mlp"), dtype="float64")
    joint, plain = (
        engine.run(method, toy.again(fed), Schedule(rounds=2)).state for method in (KTpFLJoint(confidence=0.0), KTpFL())
    )
    assert toy.distance(joint.models, plain.models) < 1e-14
    assert torch.allclose(joint.coefficients, plain.coefficients, rtol=0, atol=1e-14)


def test_nobody_to_share_an_architecture_with_is_kt_pfl() -> None:
    fed = toy.federation(3, dtype="float64")
    joint, plain = (
        engine.run(method, toy.again(fed), Schedule(rounds=2)).state for method in (KTpFLJoint(confidence=0.0), KTpFL())
    )
    assert toy.distance(joint.models, plain.models) < 1e-14
    assert torch.equal(joint.mixing, torch.eye(3, dtype=torch.float64))


def test_what_both_models_keep_of_a_round_is_kept_apart() -> None:
    """What its optimizer remembers."""
    fed = toy.federation(architectures=("linear", "mlp"))
    fed = toy.again(fed, distillation=replace(fed.distillation, momentum=0.9, optimizer_state="kept"))
    KTpFLJoint().round(KTpFLJoint().init(fed), EVERYONE, 1, fed)
    fed.client_states.end_round()
    kept = fed.client_states.kept
    assert kept["distill"].keys() == kept["mixed distill"].keys() == set(EVERYONE)
    assert not any(toy.same({0: kept["distill"][n]}, {0: kept["mixed distill"][n]}) for n in EVERYONE)


def test_of_one_architecture_d_is_the_matrix_of_kt_pfl_on_parameters() -> None:
    """In the first round, from which on the models differ."""
    fed = toy.alike("both", dtype="float64")
    joint, _ = KTpFLJoint().round(KTpFLJoint().init(fed), EVERYONE, 1, fed)
    alone, _ = KTpFLParams().round(KTpFLParams().init(fed), EVERYONE, 1, fed)
    assert torch.equal(joint.mixing, alone.coefficients)


def test_d_stays_within_architectures_and_its_rows_sum_to_one() -> None:
    fed = toy.federation()
    state = engine.run(KTpFLJoint(), fed, Schedule(rounds=3, participation=0.6)).state
    different = torch.tensor([[a.architecture != b.architecture for a in fed.clients] for b in fed.clients])
    assert not state.mixing[different].any()
    assert torch.allclose(state.mixing.sum(dim=1), torch.ones(5).double(), rtol=0, atol=1e-12)
    assert (state.mixing >= 0).all()


def test_a_client_that_never_took_part_is_sent_its_row_s_mixture() -> None:
    fed, method = toy.federation(architectures=("linear", "mlp")), KTpFLJoint()
    state, _ = method.round(method.init(fed), [3, 11], 1, fed)  # both linear
    found = method.personal(state, EVERYONE, fed)
    half = average([state.models[3], state.models[11]], torch.tensor([0.5, 0.5]))
    assert toy.distance({20: found[20]}, {20: half}) < 1e-7
    assert all(toy.same(found[n], fed.initial_models()[n]) for n in (7, 12))
    assert all(found[n] is state.models[n] for n in (3, 11))
    _, report = method.round(state, [3, 7, 20], 2, fed)  # from which it trains in its first round
    assert toy.same({20: report.after_local[20]}, fed.train({20: found[20]}, 2))
    assert {n: each.parameters_down // each.parameters_up for n, each in report.traffic.items()} == {3: 1, 7: 1, 20: 2}


def test_newcomers_are_sent_the_average_of_their_architecture_and_learn() -> None:
    fed, method = toy.federation(architectures=("linear", "mlp")), KTpFLJoint()
    state, _ = method.round(method.init(fed), [3, 7, 11], 1, fed)
    there = method.personal(state, [3, 7, 11], fed)
    sent = method.sent_first(there, [12, 20], fed)
    assert toy.same(sent[12], there[7])
    assert toy.distance({20: sent[20]}, {20: average([there[3], there[11]], fed.data_weights([3, 11]))}) < 1e-7
    joined = method.join(state, there, [12, 20], replace(fed, rounds=1))
    assert {n: joined.traffic[n].parameters_down for n in (12, 20)} == {n: wire_bytes(sent[n]) for n in (12, 20)}
    assert not any(toy.same(joined.models[n], sent[n]) for n in (12, 20))


def test_bytes_are_those_of_both_halves_and_of_the_choice() -> None:
    fed = toy.federation()
    _, report = KTpFLJoint().round(KTpFLJoint().init(fed), [3, 7], 1, fed)
    _, plain = KTpFL().round(KTpFL().init(fed), [3, 7], 1, fed)
    for n, traffic in report.traffic.items():
        size = wire_bytes(report.after_local[n])
        beside = {"parameters_up": size, "parameters_down": size, "coefficients_up": 32, "coefficients_down": 4}
        once = plain.traffic[n]
        twice = {"predictions_up": 2 * once.predictions_up, "predictions_down": 2 * once.predictions_down}
        assert traffic == replace(once, **beside, **twice)


def test_clients_step_with_equal_weights_too_where_validation_agrees() -> None:
    """`confidence` is of the teachers and not of the choice: a client stays with KT-pFL's model where mixing loses."""
    fed = toy.alike("linear", training=LocalTraining(epochs=1, batch_size=8, learning_rate=0.1))
    joint, plain = (
        engine.run(method, toy.again(fed), Schedule(rounds=4)).state for method in (KTpFLJoint(confidence=0.0), KTpFL())
    )
    assert (joint.tally[..., 0].sum(dim=0) > joint.tally[..., 1].sum(dim=0)).all()
    assert min(stepping.choose(joint.tally, 0.25)) > 0.0
    assert toy.distance(joint.models, plain.models) > 1e-3
