"""What each policy of `distillation.batch_norm` does, on a model whose statistics are worked by hand."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import batch_norm
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.recipe import BatchNormPolicy
from ktpfl_pipeline.core.settings import Distillation, Knowledge
from ktpfl_pipeline.methods import create

POLICIES = get_args(BatchNormPolicy)
STATISTICS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
PUBLIC = torch.tensor([255, 255, 255, 0], dtype=torch.uint8).reshape(4, 1, 1, 1)
"""x = 1, 1, 1, -1: mean 1/2, biased variance 3/4, unbiased variance 1."""
PRIVATE = LabeledDataset(torch.tensor([255, 0], dtype=torch.uint8).reshape(2, 1, 1, 1), torch.tensor([0, 1]))


def normalized(
    policy: Any, weight: float = 1.0, public: Any = PUBLIC, size: int = 4, frozen: bool = False
) -> Federation:
    """Return one client whose logits are (weight · x̂, 0), x̂ a pixel after BatchNorm with mean 0 and variance 4."""
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1, eps=1e-30), nn.Linear(1, 2))
    nn.init.zeros_(module[2].weight)
    nn.init.zeros_(module[2].bias)
    module[2].weight.data[0] = weight
    module[1].running_var.fill_(4.0)
    module[1].requires_grad_(not frozen)
    distillation = Distillation(epochs=1, batch_size=size, learning_rate=0.5, batch_norm=policy)
    return toy.one_client(module, PRIVATE, public, distillation=distillation)


def with_normalized(name: str) -> nn.Module:
    """Return a module of the toy federation; ``normalized`` has BatchNorm on vectors."""
    layers = [nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.Linear(12, toy.CLASSES)]
    return nn.Sequential(*layers) if name == "normalized" else toy.build(name)


class TestPredictions:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [("frozen", [0.5, 0.5, 0.5, -0.5]), ("train", [0.5, 0.5, 0.5, -0.5]), ("domain_specific", [0.5] * 3 + [-1.5])],
    )
    def test_by_hand(self, policy: str, expected: list[float]) -> None:
        """x / √4 with the running statistics, (x - 1/2) / √1 with those of the public samples."""
        fed = normalized(policy)
        logits = fed.logits(fed.initial_models(), torch.arange(4))[0, :, 0]
        assert logits.tolist() == pytest.approx(expected, abs=1e-15)

    def test_by_default_with_statistics_of_the_public_samples(self) -> None:
        """The policy that treats architectures with and without BatchNorm most alike."""
        fed = normalized(Distillation().batch_norm)
        logits = fed.logits(fed.initial_models(), torch.arange(4))[0, :, 0]
        assert logits.tolist() == pytest.approx([0.5] * 3 + [-1.5], abs=1e-15)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_of_a_frozen_part_use_its_statistics(self, policy: str) -> None:
        """As private training, evaluation and distillation do; x / √4."""
        fed = normalized(policy, frozen=True)
        logits = fed.logits(fed.initial_models(), torch.arange(4))[0, :, 0]
        assert logits.tolist() == pytest.approx([0.5, 0.5, 0.5, -0.5], abs=1e-15)

    def test_parts_count_alike(self) -> None:
        """x = 1, 1 | 1, -1 in two parts: means 1 and 0, unbiased variances 0 and 2; their means are 1/2 and 1."""
        fed = normalized("domain_specific", size=2)
        logits = fed.logits(fed.initial_models(), torch.arange(4))[0, :, 0]
        assert logits.tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-15)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_of_private_samples_use_the_private_statistics(self, policy: str) -> None:
        """Whatever was predicted before: an evaluation, and predictions of others' private samples."""
        fed = normalized(policy)
        models = fed.initial_models()
        before = fed.evaluate(models, "test")[5]
        fed.logits(models, torch.arange(4))
        assert fed.evaluate(models, "test")[5] == before
        assert fed.cross_logits(models, "test")[5][:, 0, 0].tolist() == [0.5, -0.5]

    def test_of_one_sample_use_the_private_statistics(self) -> None:
        fed = normalized("domain_specific")
        assert fed.logits(fed.initial_models(), torch.tensor([3]))[0, 0, 0].item() == -0.5

    def test_follow_the_weights_as_they_are(self) -> None:
        """The statistics are those of the model that predicts: nothing of an earlier one is left."""
        fed = normalized("domain_specific")
        models = fed.initial_models()
        first = fed.logits(models, torch.arange(4))
        other = {5: {**models[5], "1.running_mean": torch.ones(1).double()}}  # private ones do not matter
        assert torch.equal(fed.logits(other, torch.arange(4)), first)


class TestDistillation:
    TEACHER = torch.tensor([[[1.0, 0.0]] * 3 + [[0.0, 1.0]]], dtype=torch.float64)

    @pytest.mark.parametrize(
        ("policy", "weight"), [("frozen", 0.125), ("train", math.sqrt(3) / 8), ("domain_specific", math.sqrt(3) / 8)]
    )
    def test_by_hand(self, policy: str, weight: float) -> None:
        """All weights 0, so every probability is 1/2; one step of 0.5 on all four samples.

        The gradient of W_0 is the mean of ±x̂ / 2. Frozen: x̂ = x / 2, the mean is -1/4. By the batch:
        x̂ = (x - 1/2) / √(3/4) = 1/√3 three times and -√3, the mean is -(3/√3 + √3) / 8 = -√3/4.
        """
        fed = normalized(policy, weight=0.0)
        after = fed.distill(fed.initial_models(), self.TEACHER, torch.arange(4), 1)[5]
        assert after["2.weight"][0].item() == pytest.approx(weight, abs=1e-15)

    @pytest.mark.parametrize(("policy", "mean", "variance"), [("frozen", 0, 4), ("domain_specific", 0, 4)])
    def test_keeps_the_private_statistics(self, policy: str, mean: float, variance: float) -> None:
        fed = normalized(policy)
        after = fed.distill(fed.initial_models(), self.TEACHER, torch.arange(4), 1)[5]
        assert [after[name].item() for name in STATISTICS] == [mean, variance, 0]

    def test_in_training_mode_moves_them_a_tenth_of_the_way(self) -> None:
        """From 0 toward 1/2, and from 4 toward the unbiased 1."""
        fed = normalized("train")
        after = fed.distill(fed.initial_models(), self.TEACHER, torch.arange(4), 1)[5]
        assert [after[name].item() for name in STATISTICS] == pytest.approx([0.05, 3.7, 1], abs=1e-15)

    @pytest.mark.parametrize("policy", ["domain_specific", "train"])
    def test_of_one_sample_is_frozen(self, policy: str) -> None:
        """BatchNorm1d cannot be trained on one sample."""
        fed, frozen = (normalized(each) for each in (policy, "frozen"))
        teacher, batch = self.TEACHER[:, :1], torch.tensor([0])
        found = [each.distill(each.initial_models(), teacher, batch, 1) for each in (fed, frozen)]
        assert toy.same(*found)

    def test_of_one_image_moves_the_statistics_where_its_pixels_suffice(self) -> None:
        fed = toy.alike("conv", 1, distillation=Distillation(batch_norm="train"))
        before, teacher = fed.initial_models(), torch.tensor([[[0.2, 0.3, 0.5]]], dtype=torch.float64)
        (after,) = fed.distill(before, teacher, torch.tensor([0]), 1).values()
        assert after["1.num_batches_tracked"] == 1
        assert not torch.equal(after["1.running_mean"], fed.initial_model("conv")["1.running_mean"])

    def test_runs_where_one_prediction_arrives(self) -> None:
        """Of two clients one takes part, and sends the prediction of which it is most sure."""
        fed = toy.alike("normalized", 2, build=with_normalized, knowledge=Knowledge(select=0.05))
        fed = replace(fed, distillation=replace(fed.distillation, batch_norm="train"))
        run = engine.run(create("kt_pfl"), fed, engine.Schedule(1, participation=0.5))
        assert len(run.history[0].cohort) == 1

    def test_of_a_prototype_of_the_server_keeps_its_statistics_too(self) -> None:
        fed = normalized("domain_specific")
        start = {"given": fed.initial_models()[5]}
        after = fed.distill(start, self.TEACHER[0], torch.arange(4), 1)["given"]
        assert [after[name].item() for name in STATISTICS] == [0, 4, 0]
        assert not torch.equal(after["2.weight"], start["given"]["2.weight"])


def test_estimating_leaves_a_module_as_it_was_but_for_its_statistics() -> None:
    module = toy.build("both").train()
    layer = batch_norm.layers(module)[0]
    before, generator = [buffer.clone() for buffer in module.buffers()], torch.get_rng_state()
    with batch_norm.predicting(module, "domain_specific", toy.samples(9, 0).inputs, lambda x: x.float(), 4):
        assert not torch.equal(layer.running_mean, before[0])
    assert toy.same([*module.buffers()], before)
    assert layer.momentum == 0.1
    assert torch.equal(torch.get_rng_state(), generator)  # dropout drew nothing


def test_models_without_batch_norm_are_predicted_alike_by_every_policy() -> None:
    found = []
    for policy in POLICIES:
        fed = toy.federation(architectures=("linear", "mlp"), distillation=Distillation(batch_norm=policy))
        found.append(fed.logits(fed.initial_models(), fed.public_batch(1)))
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.fixture(params=["kt_pfl", "kt_pfl_joint", "feddf", "scarlet", "selective_fd"])
def method(request: Any) -> Any:
    return create(request.param)


def federations(executor: Any = None) -> Federation:
    settings = Distillation(epochs=1, batch_size=5, learning_rate=0.05, batch_norm="domain_specific")
    fed = toy.federation(architectures=("conv", "both"), distillation=settings, rounds=3)
    return fed if executor is None else toy.again(fed, executor=executor)


@pytest.fixture
def straight(method: Any) -> Iterator[Any]:
    yield engine.run(method, federations(), engine.Schedule(3))


def personal(method: Any, run: Any) -> Any:
    fed = federations()
    return method.personal(run.state, fed.by_id, fed)


def test_workers_and_a_resumed_run_change_nothing(method: Any, straight: Any, tmp_path: Path) -> None:
    """Two rounds in workers, and the third in this process."""
    file = tmp_path / "run.pt"
    with closing(ProcessesExecutor(2)) as executor, pytest.raises(KeyboardInterrupt):
        engine.run(method, federations(executor), engine.Schedule(3), checkpoint_file=file, observer=Stop())
    resumed = engine.run(method, federations(), engine.Schedule(3), checkpoint_file=file)
    assert toy.same(personal(method, resumed), personal(method, straight))


class Stop(engine.Observer):
    """Ends a run after its second round."""

    def __init__(self) -> None:
        super().__init__(round=_end_after_two)


def _end_after_two(record: Any) -> None:
    if record.round == 2:
        raise KeyboardInterrupt
