"""FedMD: what sets it apart from the contract. That it is KT-pFL frozen at 1/N is in `test_kt_pfl.py`."""

import pytest
import torch
import toy

from ktpfl_pipeline.core.settings import Distillation
from ktpfl_pipeline.methods.fedmd import FedMD

EVERYONE = list(toy.IDS)


@pytest.mark.parametrize("cohort", [EVERYONE, [7, 11, 20], [12]], ids=["all", "three", "one"])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_round_distills_the_average_of_the_probabilities(cohort: list[int], temperature: float) -> None:
    fed = toy.federation(distillation=Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=temperature))
    after, report = FedMD().round(FedMD().init(fed), cohort, 1, fed)
    trained = fed.train({n: fed.initial_models()[n] for n in cohort}, 1)
    soft = [torch.softmax(z.double() / temperature, dim=1) for z in fed.logits(trained, fed.public_batch(1))]
    consensus = sum(soft) / len(cohort)
    expected = fed.distill(trained, consensus.expand(len(cohort), -1, -1), fed.public_batch(1), 1)
    assert toy.distance({n: after.models[n] for n in cohort}, expected) < 1e-6
    assert toy.same(report.after_local, trained)
    assert report.coefficients is None
    if len(cohort) > 1:
        assert toy.distance(expected, trained) > 1e-4


def test_identical_clients_have_nothing_to_learn() -> None:
    """Equal models on equal data agree, so the consensus is everybody's own prediction."""
    fed = toy.federation(architectures=("conv",), dtype="float64")
    start = FedMD().init(fed)
    trained = fed.train({3: start.models[3]}, 1)[3]
    models = dict.fromkeys(EVERYONE, trained)
    soft = torch.softmax(fed.logits(models, fed.public_batch(1)), dim=2)
    distilled = fed.distill(models, soft.mean(dim=0).expand_as(soft), fed.public_batch(1), 1)
    assert toy.distance(models, distilled) < 1e-14
