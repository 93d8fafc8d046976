"""What a run keeps of the answers of its final models on test samples."""

import pytest
import torch
import toy

from ktpfl_pipeline.analysis.classes import GROUPS, by_class
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.measures import measures
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.methods.local import Local


def test_answers_and_measures_without_each_group_of_samples() -> None:
    fed = toy.federation()
    result = engine.run(Local(), fed, Schedule(rounds=1))
    kept, last = by_class(Local(), result, fed), result.history[-1].accuracy["after_transfer"]
    logits = fed.own_logits(Local().personal(result.state, fed.by_id, fed), "test")
    for place, client in enumerate(fed.clients):
        answers, labels = kept["correct"][place], client.test.labels
        assert [int(digit) for digit in answers] == (logits[place].argmax(dim=1) == labels).int().tolist()
        assert sum(map(int, answers)) / len(labels) == pytest.approx(last[place])
        groups = min(GROUPS, len(labels))
        stays = torch.arange(len(labels)) % groups != 1 % groups
        without = measures(logits[place][stays], labels[stays], torch.ones(int(stays.sum()), dtype=torch.bool))
        for name, values in kept["jackknife"].items():
            assert len(values[place]) == groups
            assert values[place][1 % groups] == pytest.approx(float(without[name]), nan_ok=True)
