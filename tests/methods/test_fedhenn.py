"""FedHeNN: kernels of public samples that clients of any widths compare."""

from dataclasses import replace
from math import sqrt

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import BatchNormPolicy
from ktpfl_pipeline.methods.fedhenn import FedHeNN, cka, train_client

EVERYONE = list(toy.IDS)


class TestCKA:
    def test_by_hand(self) -> None:
        """Features (1, -1, 0) and (1, 1, -2) are centered and orthogonal: 0. With (1, -1, 0) and (0, -1, 1): 1/4.

        Kernels of single centered features have the squared cosine of the features: (1 / √2 √2)².
        """
        a, b, c = (torch.tensor([[x] for x in each]) for each in ([1.0, -1.0, 0.0], [1.0, 1.0, -2.0], [0.0, -1.0, 1.0]))
        assert float(cka(a @ a.T, b @ b.T)) == pytest.approx(0.0, abs=1e-6)
        assert float(cka(a @ a.T, c @ c.T)) == pytest.approx(0.25)

    def test_widths_scales_shifts_and_rotations_do_not_matter(self) -> None:
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(7, 3, generator=generator, dtype=torch.float64)
        rotation, _ = torch.linalg.qr(torch.randn(5, 3, generator=generator, dtype=torch.float64))
        other = 4.0 * features @ rotation.T + torch.randn(5, generator=generator, dtype=torch.float64)
        assert float(cka(features @ features.T, other @ other.T)) == pytest.approx(1.0)

    def test_of_equal_samples_is_0(self) -> None:
        assert float(cka(torch.ones(3, 3), torch.eye(3))) == 0.0


def kernel(features: Tensor) -> Tensor:
    return features @ features.T


def test_two_rounds_are_those_of_a_plain_implementation() -> None:
    """Public images are normalized with the running statistics, as distillation with frozen BatchNorm has it."""
    fed = toy.federation(architectures=("linear", "conv"), dtype="float64")
    method, cohort = FedHeNN(coupling=2.0, samples=9), [3, 7, 12]
    state = method.init(fed)
    for t in (1, 2, 3):
        after, report = method.round(state, cohort, t, fed)
        public = by_hand.public_pixels(fed, t)[:9]
        modules = {n: by_hand.module(fed, n, state.models[n]) for n in cohort}
        with torch.no_grad():
            mean = sum(kernel(module.eval()[:-1](public)) for module in modules.values()) / 3
        for n, module in modules.items():
            images, labels = by_hand.pixels(fed.by_id[n].train), fed.by_id[n].train.labels
            for batch in by_hand.batches(fed, n, t):
                loss = cross_entropy(module.train()(images[batch]), labels[batch])
                own = kernel(module.eval()[:-1](public))
                center = torch.eye(9, dtype=torch.float64) - 1 / 9
                a, b = (center @ each @ center for each in (mean, own))
                loss = loss + 2.0 * sqrt(t - 1) * (1 - (a * b).sum() / (a.norm() * b.norm()))
                by_hand.descend(list(module.parameters()), loss, fed.training.learning_rate)
            assert by_hand.differ(after.models[n], module.state_dict()) < 1e-12
        assert toy.same({n: after.models[n] for n in cohort}, report.after_local)
        alone = fed.train({7: state.models[7]}, t)
        assert (toy.distance(alone, {7: after.models[7]}) > 1e-3) == (t > 1)
        state = after


@pytest.mark.parametrize(("samples", "used"), [(9, 9), (1000, 13)])
def test_triangles_of_kernels_travel(samples: int, used: int) -> None:
    """A kernel is symmetric, so 9 · 10 / 2 of its 81 numbers suffice; an image has 64 bytes."""
    fed, method = toy.federation(), FedHeNN(samples=samples)
    _, report = method.round(method.init(fed), [3, 20], 1, fed)
    size = 4 * used * (used + 1) // 2
    expected = Traffic(similarities_up=size, similarities_down=size, public_down=64 * used)
    assert report.traffic == dict.fromkeys([3, 20], expected)


def test_public_samples_count_as_work() -> None:
    """Two epochs of 16 images in 2 steps each; each step also backpropagates 13 public images if they matter."""
    fed = toy.federation()
    batch, params = fed.public_batch(1), fed.initial_model("linear")
    for weight, samples in ((0.0, 32), (0.5, 32 + 4 * 13)):
        outcome = train_client(Workspace(fed), 3, params, 1, torch.eye(13), batch, weight)
        assert sum(outcome.samples.values()) == samples


@pytest.mark.parametrize("policy", ["frozen", "domain_specific"])
def test_public_images_leave_the_running_statistics_alone(policy: BatchNormPolicy) -> None:
    """Where the pull is almost nothing, models equal those of local training, their statistics too."""
    fed = toy.federation(3, architectures=("conv",), dtype="float64")
    fed = toy.again(fed, distillation=replace(fed.distillation, batch_norm=policy))
    method = FedHeNN(coupling=1e-12)
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    after, _ = method.round(state, [3, 7], 2, fed)
    alone = fed.train({n: state.models[n] for n in (3, 7)}, 2)
    assert toy.distance({n: after.models[n] for n in (3, 7)}, alone) < 1e-9
