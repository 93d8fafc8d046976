"""What methods of one architecture share: bytes, refusals, and which images they use."""

from dataclasses import replace
from typing import Any

import pytest
import toy

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods import create

EVERYONE = list(toy.IDS)
BOTH_WAYS = (
    "kt_pfl_params",
    "fedavg",
    "fedavg_ft",
    "per_fedavg",
    "per_fedavg_hf",
    "pfedme",
    "fedamp",
    "heur_fedamp",
    "pfedhn",
    "ditto",
)
NAMES = (*BOTH_WAYS, "fedfomo", "fedrep", "apple")


@pytest.mark.parametrize("name", NAMES)
def test_several_architectures_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"there are conv, linear, mlp\. Set architectures to one name"):
        create(name).init(toy.federation())


@pytest.mark.parametrize("name", BOTH_WAYS)
@pytest.mark.parametrize("cohort", [EVERYONE, [20, 7]], ids=["all", "two"])
def test_a_model_up_and_a_model_down(name: str, cohort: list[int]) -> None:
    """Float32 of 4*9 + 4 weights, BatchNorm's four times 4, and 36*3 + 3; no counter, no public data."""
    fed, method = toy.alike("conv", public_transport="float32"), create(name)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    _, report = method.round(state, cohort, 2, fed)
    size = 4 * (40 + 16 + 111)
    assert report.traffic == dict.fromkeys(cohort, Traffic(parameters_up=size, parameters_down=size))


@pytest.mark.parametrize("name", NAMES)
def test_test_images_are_for_the_evaluation_alone(name: str) -> None:
    """Others there change neither a state nor a personal model; others to train on change both."""
    fed, method = toy.alike("both"), create(name)
    found = {}
    for split in ("none", "test", "train"):
        clients = tuple(
            replace(client, **({} if split == "none" else {split: toy.samples(len(getattr(client, split)), seed=99)}))
            for client in fed.clients
        )
        these = toy.again(fed, clients=clients)
        state = method.init(these)
        for t in (1, 2):
            state, _ = method.round(state, EVERYONE, t, these)
        found[split] = state, method.personal(state, EVERYONE, these)
    assert toy.same(found["none"], found["test"])
    assert not toy.same(found["none"][1], found["train"][1])


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("kt_pfl_params", {"mu": 1.1}, "kt_pfl_params.mu is 1.1; it must lie between 0 and 1"),
        ("kt_pfl_params", {"mu": -0.1}, "kt_pfl_params.mu is -0.1; it must lie between 0 and 1"),
        ("kt_pfl_params", {"update": "sgd"}, "'sgd'; choose one of eg, pgd, softmax, exact"),
        ("kt_pfl_params", {"rho": float("nan")}, "kt_pfl.rho is nan; it must be finite and at least 0"),
        ("fedavg_ft", {"epochs": -1}, "is -1; it must be finite and at least 0"),
        ("per_fedavg", {"alpha": -1.0}, "per_fedavg.alpha is -1.0; it must be finite and at least 0"),
        ("per_fedavg_hf", {"beta": float("inf")}, "per_fedavg.beta is inf; it must be finite and at least 0"),
        ("per_fedavg", {"adapt_steps": -1}, "per_fedavg.adapt_steps is -1; it must be finite and at least 0"),
        ("pfedme", {"coupling": -1.0}, "pfedme.coupling is -1.0; it must be finite and at least 0"),
        ("pfedme", {"inner_steps": 0}, "pfedme.inner_steps is 0; it must be finite and at least 1"),
        ("pfedme", {"inner_rate": float("nan")}, "pfedme.inner_rate is nan; it must be finite and at least 0"),
        ("pfedme", {"server_rate": 2.5}, "pfedme.server_rate is 2.5; it must lie between 0 and 2"),
        ("fedamp", {"coupling": float("inf")}, "fedamp.coupling is inf; it must be finite and at least 0"),
        ("fedamp", {"attention": 1.5}, "fedamp.attention is 1.5; it must lie between 0 and 1"),
        ("heur_fedamp", {"attention": -0.5}, "fedamp.attention is -0.5; it must lie between 0 and 1"),
        ("heur_fedamp", {"sharpness": -1.0}, "heur_fedamp.sharpness is -1.0; it must be finite and at least 0"),
        ("fedfomo", {"candidates": 0}, "fedfomo.candidates is 0; it must be finite and at least 1"),
        ("fedfomo", {"explore": 1.5}, "fedfomo.explore is 1.5; it must lie between 0 and 1"),
        ("fedfomo", {"decay": -0.1}, "fedfomo.decay is -0.1; it must lie between 0 and 1"),
        ("pfedhn", {"hidden": 0}, "pfedhn.hidden is 0; it must be finite and at least 1"),
        ("pfedhn", {"layers": -1}, "pfedhn.layers is -1; it must be finite and at least 0"),
        ("pfedhn", {"rate": float("nan")}, "pfedhn.rate is nan; it must be finite and at least 0"),
        ("pfedhn", {"decay": -1.0}, "pfedhn.decay is -1.0; it must be finite and at least 0"),
        ("pfedhn", {"clip": -1.0}, "pfedhn.clip is -1.0; it must be finite and at least 0"),
        ("pfedhn", {"momentum": 1.5}, "pfedhn.momentum is 1.5; it must lie between 0 and 1"),
        ("ditto", {"coupling": -0.1}, "ditto.coupling is -0.1; it must be finite and at least 0"),
        ("fedrep", {"body_epochs": -1}, "fedrep.body_epochs is -1; it must be finite and at least 0"),
        ("apple", {"relation_rate": -0.1}, "apple.relation_rate is -0.1; it must be finite and at least 0"),
        ("apple", {"pull": float("nan")}, "apple.pull is nan; it must be finite and at least 0"),
    ],
    ids=str,
)
def test_meaningless_hyperparameters_are_refused(name: str, hyperparameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        create(name, hyperparameters)
    assert message in str(refused.value)
