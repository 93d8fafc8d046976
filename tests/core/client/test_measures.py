"""Balanced accuracy, macro F1 and calibration: scikit-learn's numbers, and those of a loop."""

import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from torch import Tensor

from ktpfl_pipeline.core.client.measures import MEASURES, Evaluation, measures, packed


def drawn(seed: int, samples: int = 60, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Logits that are right more often than not, and labels of all classes but the last two, unequally frequent."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), samples, replacement=True, generator=generator)
    logits = torch.randn(samples, classes, generator=generator)
    logits[torch.arange(samples), labels] += 1.5
    return logits, labels


def all_count(labels: Tensor) -> Tensor:
    return torch.ones_like(labels, dtype=torch.bool)


def calibration_by_hand(logits: Tensor, labels: Tensor) -> float:
    """Guo et al., Eq. (3): the mean over samples of |accuracy - confidence| of their bin, ((m - 1) / 15, m / 15]."""
    confidence, predicted = torch.softmax(logits.double(), dim=1).max(dim=1)
    total = 0.0
    for m in range(1, 16):
        inside = (confidence > (m - 1) / 15) & (confidence <= m / 15)
        if inside.any():
            accuracy = (predicted[inside] == labels[inside]).double().mean()
            total += float(inside.double().mean() * (accuracy - confidence[inside].mean()).abs())
    return total


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_learn_and_by_hand(seed: int) -> None:
    logits, labels = drawn(seed)
    found = measures(logits, labels, all_count(labels))
    balanced, f1, calibration = (float(found[name]) for name in ("balanced_accuracy", "macro_f1", "calibration_error"))
    predicted, present = logits.argmax(dim=1).numpy(), sorted(set(labels.tolist()))
    assert balanced == pytest.approx(balanced_accuracy_score(labels.numpy(), predicted), abs=1e-12)
    assert f1 == pytest.approx(f1_score(labels, predicted, labels=present, average="macro"), abs=1e-12)
    assert calibration == pytest.approx(calibration_by_hand(logits, labels), abs=1e-12)


def test_clients_side_by_side_and_samples_that_do_not_count() -> None:
    """The shorter one is filled up with what must not count."""
    (one, ones), (other, others) = drawn(1, 60), drawn(2, 40)
    filled = torch.cat([other, 100.0 * torch.eye(5).repeat(4, 1)]), torch.cat([others, torch.full((20,), 4)])
    counts = torch.stack([all_count(ones), torch.arange(60) < 40])
    found = measures(torch.stack([one, filled[0]]), torch.stack([ones, filled[1]]), counts)
    alone = [measures(one, ones, all_count(ones)), measures(other, others, all_count(others))]
    for name in MEASURES:
        assert found[name].tolist() == pytest.approx([float(each[name]) for each in alone], abs=1e-14), name


def test_certain_and_right_is_perfect() -> None:
    labels = torch.tensor([0, 1, 1])
    found = measures(100.0 * torch.eye(3)[labels], labels, all_count(labels))
    perfect = {"balanced_accuracy": 1.0, "macro_f1": 1.0, "auc": 1.0, "calibration_error": 0.0}
    assert {name: float(found[name]) for name in perfect} == pytest.approx(perfect, abs=1e-12)


def test_a_bin_of_confidence_has_its_upper_end() -> None:
    """Confidences of 29/30, right, and of 1, wrong, are in the last bin: its accuracy is 1/2, its confidence 59/60."""
    logits, labels = torch.tensor([[1.0, 29.0], [0.0, 30.0]]).log(), torch.tensor([1, 0])
    assert float(measures(logits, labels, all_count(labels))["calibration_error"]) == pytest.approx(29 / 60)


def test_an_evaluation_has_every_measure_and_no_other() -> None:
    logits, labels = drawn(0)
    assert set(measures(logits, labels, all_count(labels))) == set(MEASURES)


class TestAUC:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("digits", [None, 1])
    def test_against_scikit_learn_also_with_ties(self, seed: int, digits: int | None) -> None:
        """Rounded logits score many samples alike. The last two classes have no samples, and do not count."""
        logits, labels = drawn(seed)
        logits = logits if digits is None else logits.round()
        scores = logits.double().softmax(dim=1)
        by_class = [roc_auc_score((labels == k).numpy(), scores[:, k].numpy()) for k in range(3)]
        assert float(measures(logits, labels, all_count(labels))["auc"]) == pytest.approx(sum(by_class) / 3, abs=1e-12)

    def test_by_hand(self) -> None:
        """Of 2 x 2 pairs, class 1 wins two, loses one and ties one; with two classes class 0 mirrors it."""
        one = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
        labels = torch.tensor([0, 1, 1, 0])
        assert float(measures(one.log(), labels, all_count(labels))["auc"]) == pytest.approx(3.5 / 4)

    def test_samples_of_one_class_have_none(self) -> None:
        labels = torch.tensor([1, 1])
        given = {"accuracy": torch.tensor(1.0), "loss": torch.tensor(0.5)}
        row = packed({**given, **measures(torch.eye(2), labels, all_count(labels))})
        found = Evaluation.of(row.tolist())
        assert math.isnan(found.auc)
        assert found.loss == 0.5
