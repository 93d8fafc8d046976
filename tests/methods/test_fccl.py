"""FCCL: logits that correlate with the clients' mean class by class, and local training that remembers."""

import by_hand
import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from ktpfl_pipeline.core import compatibility
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Knowledge
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods.fccl import FCCL, correlation_loss
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)


class TestCorrelationLoss:
    def test_by_hand(self) -> None:
        """Both mean logits follow the first class: M = (1, 1; 0, 0), so (1 - 0)² and λ (2² + 1²)."""
        logits = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        mean = torch.tensor([[3.0, 1.0], [-3.0, -1.0], [0.0, 0.0], [0.0, 0.0]])
        assert float(correlation_loss(logits, mean, 0.1)) == pytest.approx(1.0 + 0.1 * 5.0)

    def test_depends_on_correlations_alone(self) -> None:
        generator = torch.Generator().manual_seed(0)
        logits, mean = (torch.randn(9, 3, generator=generator, dtype=torch.float64) for _ in range(2))
        m = torch.corrcoef(torch.cat([logits, mean], dim=1).T)[:3, 3:]
        terms = [(1 - m[u, v]) ** 2 if u == v else 0.3 * (1 + m[u, v]) ** 2 for u in range(3) for v in range(3)]
        for scale, shift in ((1.0, 0.0), (torch.tensor([2.0, 5.0, 0.1]), torch.tensor([1.0, -3.0, 0.0]))):
            assert float(correlation_loss(logits * scale + shift, mean, 0.3)) == pytest.approx(float(sum(terms)))

    def test_a_class_whose_logit_is_constant_correlates_with_none(self) -> None:
        logits = torch.tensor([[1.0, 7.0], [-1.0, 7.0]], requires_grad=True)
        loss = correlation_loss(logits, torch.tensor([[1.0, -2.0], [-1.0, 2.0]]), 1.0)
        assert loss.item() == pytest.approx(0.0 + 1.0 + 0.0 + 1.0)  # M = (1, -1; 0, 0)
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def plain_round(
    fed: Federation, models: dict[int, Params], earlier: dict[int, list[Params]], t: int
) -> tuple[dict[int, nn.Module], ...]:
    """Return each client's module after local training, and the module after collaboration, of a plain FCCL."""
    local, rate = {}, fed.training.learning_rate
    for n, params in models.items():
        module, samples = by_hand.module(fed, n, params), fed.by_id[n].train
        teachers = [by_hand.module(fed, n, each) for each in earlier[n]]
        for batch in by_hand.batches(fed, n, t):
            images = by_hand.pixels(samples)[batch]
            logits = module(images)
            loss = cross_entropy(logits, samples.labels[batch])
            for teacher in teachers:
                with torch.no_grad():
                    soft = softmax(teacher(images), dim=1)
                loss = loss + kl_div(log_softmax(logits, dim=1), soft, reduction="batchmean")
            by_hand.descend(list(module.parameters()), loss, rate)
        local[n] = module
    public = by_hand.public_pixels(fed, t)
    with torch.no_grad():
        mean = sum(module(public) for module in local.values()) / len(local)
    taught = {n: by_hand.module(fed, n, module.state_dict()) for n, module in local.items()}
    for n, module in taught.items():
        for part in by_hand.public_batches(fed, n, t):
            by_hand.descend(list(module.parameters()), plain_loss(module(public[part]), mean[part]), 0.05)
    return local, taught


def plain_loss(logits: Tensor, mean: Tensor) -> Tensor:
    m = torch.corrcoef(torch.cat([logits, mean], dim=1).T)[:3, 3:]
    different = ~torch.eye(3, dtype=torch.bool)
    return (1 - m.diagonal()).square().sum() + 0.0051 * (1 + m[different]).square().sum()


class TestRound:
    def test_three_rounds_are_those_of_a_plain_implementation(self) -> None:
        """The first has no memory; from the second on, two earlier models teach, which differ in the third."""
        fed, method, cohort = toy.federation(architectures=("linear",), dtype="float64"), FCCL(), [3, 7, 12]
        state = method.init(fed)
        history: dict[int, list[Params]] = {n: [] for n in cohort}
        for t in (1, 2, 3):
            earlier = {n: [models[-1], models[0]] if models else [] for n, models in history.items()}
            local, taught = plain_round(fed, {n: state.models[n] for n in cohort}, earlier, t)
            after, report = method.round(state, cohort, t, fed)
            for n in cohort:
                history[n].append(local[n].state_dict())
                assert by_hand.differ(report.after_local[n], local[n].state_dict()) < 1e-12
                assert by_hand.differ(after.models[n], taught[n].state_dict()) < 1e-12
                assert by_hand.differ(after.models[n], report.after_local[n]) > 1e-4
                assert toy.same(after.previous[n], report.after_local[n])
                assert after.pretrained[n] is (state.pretrained if t > 1 else after.previous)[n]
            state = after
        assert set(state.previous) == set(state.pretrained) == set(cohort)

    def test_without_memory_local_training_is_as_alone(self) -> None:
        fed, method = toy.federation(), FCCL(memory=0.0)
        state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        _, report = method.round(state, EVERYONE, 2, fed)
        assert toy.same(report.after_local, fed.train(state.models, 2))
        _, report = FCCL().round(state, EVERYONE, 2, fed)
        assert toy.distance(report.after_local, fed.train(state.models, 2)) > 1e-3

    def test_only_logits_and_public_images_travel(self) -> None:
        """13 images of 3 classes, four bytes a logit, each way; 64 bytes an image."""
        fed = toy.federation()
        _, report = FCCL().round(FCCL().init(fed), [3, 20], 1, fed)
        expected = Traffic(predictions_up=4 * 13 * 3, predictions_down=4 * 13 * 3, public_down=13 * 64)
        assert report.traffic == dict.fromkeys([3, 20], expected)


@pytest.mark.parametrize("knowledge", [Knowledge("uint8"), Knowledge(cache=2), Knowledge(select=0.5)], ids=str)
def test_compressed_predictions_are_refused(knowledge: Knowledge) -> None:
    """They are right only up to a constant a sample, which correlations over samples see."""
    fed = toy.federation(knowledge=knowledge)
    (said,) = compatibility.problems(FCCL(), fed)
    assert said.startswith("knowledge.")
    assert not compatibility.problems(Local(), fed)
