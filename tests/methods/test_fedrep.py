"""FedRep: which part moves when, what is averaged, and what a client keeps."""

import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.methods.fedrep import FedRep

EVERYONE = list(toy.IDS)
HEAD = {"conv": ["4.weight", "4.bias"], "mlp": ["4.weight", "4.bias"], "both": ["5.weight", "5.bias"]}


def training(epochs: int, batch_size: int = 100) -> LocalTraining:
    return LocalTraining(epochs=epochs, batch_size=batch_size, learning_rate=0.1)


def test_a_round_is_the_head_and_then_the_body() -> None:
    """One full-batch step of each, by autograd; the body's gradient is at the new head."""
    fed = toy.alike("conv", dtype="float64", training=training(2))
    _, report = FedRep().round(FedRep().init(fed), EVERYONE, 1, fed)
    for n in EVERYONE:
        module, samples = toy.build("conv").double().train(), fed.by_id[n].train
        module.load_state_dict(fed.initial_model("conv"))
        for moves_head in (True, False):
            module.zero_grad()
            cross_entropy(module(samples.inputs.double() / 127.5 - 1.0), samples.labels).backward()
            with torch.no_grad():
                for name, parameter in module.named_parameters():
                    if (name in HEAD["conv"]) == moves_head:
                        parameter.sub_(parameter.grad, alpha=0.1)
        assert toy.distance({n: report.after_local[n]}, {n: dict(module.state_dict())}) < 1e-13


@pytest.mark.parametrize(
    ("architecture", "epochs", "body_epochs", "body_moves"),
    [("conv", 2, 0, False), ("mlp", 2, 2, True), ("both", 1, 1, True), ("both", 2, 5, True)],
)
def test_a_head_is_always_trained_and_a_body_without_epochs_stays(
    architecture: str, epochs: int, body_epochs: int, body_moves: bool
) -> None:
    """Bit for bit, with E = 1 too."""
    fed, method = toy.alike(architecture, training=training(epochs, 8)), FedRep(body_epochs)
    _, report = method.round(method.init(fed), EVERYONE, 1, fed)
    start = fed.initial_model(architecture)
    for params in report.after_local.values():
        for name in (name for name in fed.trained_names if name.endswith("weight")):  # BatchNorm undoes a bias
            assert torch.equal(params[name], start[name]) != (name in HEAD[architecture] or body_moves), name


@pytest.mark.parametrize(
    ("epochs", "body_epochs", "expected"),
    [(3, 1, 9), (3, 0, 9), (4, 2, 12), (4, 4, 12), (1, 0, 3), (1, 1, 6), (0, 1, 0)],
)
def test_head_and_body_share_the_epochs_one_each_at_least(epochs: int, body_epochs: int, expected: int) -> None:
    """20 images are three batches an epoch, which BatchNorm counts."""
    fed, method = toy.alike("conv", training=training(epochs, 8)), FedRep(body_epochs)
    _, report = method.round(method.init(fed), [11], 1, fed)
    assert report.after_local[11]["1.num_batches_tracked"].item() == expected


def test_bodies_are_averaged_by_samples_and_heads_are_not() -> None:
    fed = toy.alike("conv", dtype="float64")
    after, report = FedRep().round(FedRep().init(fed), [3, 12], 1, fed)
    one, other = (report.after_local[n] for n in (3, 12))
    assert set(after.common) == set(one) - set(HEAD["conv"])  # BatchNorm's statistics among them
    for name, value in after.common.items():
        if value.is_floating_point():
            assert torch.allclose(value, (16 * one[name] + 9 * other[name]) / 25, rtol=0, atol=1e-14)
    found = FedRep().personal(after, EVERYONE, fed)
    for n in EVERYONE:
        head = report.after_local[n] if n in (3, 12) else fed.initial_model("conv")
        assert all(torch.equal(found[n][name], head[name]) for name in HEAD["conv"])
        assert all(torch.equal(found[n][name], value) for name, value in after.common.items())


def test_a_client_trains_on_from_its_own_head() -> None:
    """One full-batch step, by autograd: on the common body, from what an earlier round left of the head."""
    fed, method = toy.alike("conv", dtype="float64", training=training(1)), FedRep(body_epochs=0)
    before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    _, report = method.round(before, EVERYONE, 2, fed)
    assert not torch.equal(before.models[3]["4.weight"], before.models[7]["4.weight"])
    for n in EVERYONE:
        module, samples = toy.build("conv").double().train(), fed.by_id[n].train
        module.load_state_dict({**before.models[n], **before.common})
        cross_entropy(module(samples.inputs.double() / 127.5 - 1.0), samples.labels).backward()
        for name in HEAD["conv"]:
            expected = before.models[n][name] - 0.1 * module.get_parameter(name).grad
            assert torch.allclose(report.after_local[n][name], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("architecture", "numbers"), [("conv", 40 + 16), ("mlp", 780), ("linear", 0)])
def test_only_the_body_travels(architecture: str, numbers: int) -> None:
    """With BatchNorm's means and variances; a linear model is all head."""
    fed = toy.alike(architecture)
    _, report = FedRep().round(FedRep().init(fed), [3, 20], 1, fed)
    expected = Traffic(parameters_up=4 * numbers, parameters_down=4 * numbers)
    assert report.traffic == {3: expected, 20: expected}


def test_a_model_that_is_only_a_head_is_trained_locally() -> None:
    fed = toy.alike("linear", training=training(1, 100), dtype="float64")
    run = engine.run(FedRep(body_epochs=0), fed, Schedule(rounds=2))
    models = fed.initial_models()
    for t in (1, 2):  # full batches: the order of images does not matter
        models = fed.train(models, t)
    assert toy.distance(run.state.models, models) < 1e-14
