"""What methods of one architecture share: bytes, refusals, and which images they use."""

from dataclasses import replace

import pytest
import toy

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods import ONE_ARCHITECTURE, create, find

EVERYONE = list(toy.IDS)
BOTH_WAYS = (
    "kt_pfl_params",
    "fedavg",
    "fedavg_ft",
    "fedprox",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "per_fedavg",
    "per_fedavg_hf",
    "pfedme",
    "fedamp",
    "heur_fedamp",
    "pfedhn",
    "ditto",
    "apfl",
    "fedala",
    "fedrod",
    "pfedgraph",
)
NAMES = [name for name in ONE_ARCHITECTURE if find(name).kind.one_architecture]  # training alone is without


def test_several_architectures_are_refused() -> None:
    fed, found = toy.federation(), {}
    for name in NAMES:
        try:
            create(name).init(fed)
        except InputError as refused:
            found[name] = str(refused)
    assert list(found) == NAMES
    asked = "architectures is linear, conv, mlp, which excludes this method: models are combined"
    assert [name for name, message in found.items() if asked not in message] == []


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_model_up_and_a_model_down(name: str) -> None:
    """Float32 of 4*9 + 4 weights, BatchNorm's four times 4, and 36*3 + 3; no counter, no public data."""
    fed, method = toy.alike("conv", public_transport="float32"), create(name)
    state, size = method.init(fed), 4 * (40 + 16 + 111)
    for t, cohort in ((1, EVERYONE), (2, [20, 7])):
        state, report = method.round(state, cohort, t, fed)
        assert report.traffic == dict.fromkeys(cohort, Traffic(parameters_up=size, parameters_down=size))


@pytest.mark.parametrize("name", NAMES)
def test_test_images_are_used_only_for_evaluation(name: str) -> None:
    """Others there change neither a state nor a personal model; others to train on change both."""
    fed, method = toy.alike("both", 2), create(name)
    everyone, found = EVERYONE[:2], {}
    for split in ("none", "test", "train"):
        clients = tuple(
            replace(client, **({} if split == "none" else {split: toy.samples(len(getattr(client, split)), seed=99)}))
            for client in fed.clients
        )
        these = toy.again(fed, clients=clients)
        state = method.init(these)
        for t in (1, 2):
            state, _ = method.round(state, everyone, t, these)
        found[split] = state, method.personal(state, everyone, these)
    assert toy.same(found["none"], found["test"])
    assert not toy.same(found["none"][1], found["train"][1])
