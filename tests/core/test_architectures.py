"""Which client has which architecture."""

import json
from collections import Counter
from typing import Any

import experiment as support
import pytest

from ktpfl_pipeline.config import checks, parsing
from ktpfl_pipeline.core import architectures
from ktpfl_pipeline.core.errors import InputError

THREE = [4, 7, 9]


@pytest.mark.parametrize(
    ("given", "clients", "expected"),
    [
        (["lenet", "mlp"], THREE, ["lenet", "mlp", "lenet"]),
        ({"lenet": 2, "mlp": 1}, THREE, ["lenet", "mlp", "lenet"]),
        ({"lenet": 1, "mlp": 4}, range(5), ["lenet", "mlp", "mlp", "mlp", "mlp"]),
        ({"lenet": 0.5, "mlp": 0.5}, range(4), ["lenet", "mlp", "lenet", "mlp"]),
        ({"lenet": 0.5, "mlp": 0.25, "cnn": 0.25}, range(5), ["lenet", "mlp", "cnn", "lenet", "lenet"]),
        ({"lenet": 1.0}, THREE, ["lenet"] * 3),
        ({"lenet": 3}, THREE, ["lenet"] * 3),
        ({"4": "mlp", "9": "lenet", "7": "mlp"}, THREE, ["mlp", "mlp", "lenet"]),
    ],
)
def test_dealt(given: Any, clients: Any, expected: list[str]) -> None:
    assert architectures.dealt(given, clients) == dict(zip(clients, expected, strict=True))


def test_shares_are_met_as_closely_as_clients_allow() -> None:
    shares = {"a": 0.41, "b": 0.35, "c": 0.24}
    for clients in (3, 7, 20, 100):
        counts = Counter(architectures.dealt(shares, range(clients)).values())
        assert counts.total() == clients
        assert all(abs(counts[name] - share * clients) < 1 for name, share in shares.items()), clients


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lenet": 2, "mlp": 2}, r"adds up to 4; numbers must add up to the 3 clients and shares to 1\."),
        ({"lenet": 0.5, "mlp": 0.6}, r"adds up to 1\.1; numbers"),
        ({"lenet": 1.5, "mlp": 1.5}, r"adds up to 3; numbers"),
        (
            {"lenet": 0.99, "mlp": 0.01},
            r"has mlp with a share of 0\.01, which gives it no client of 3",
        ),
        ({"4": "mlp", "7": "mlp"}, r"has no entry for client 9; name one for each of the 3 clients\."),
        ({"4": "mlp", "7": "mlp", "9": "mlp", "5": "mlp"}, r"has an entry for client 5, but the clients are 4 to 9\."),
    ],
)
def test_what_does_not_go_with_the_clients(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^architectures {said}"):
        architectures.dealt(given, THREE)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lenet": 0},
        {"lenet": -1, "mlp": 3},
        {"lenet": "mlp"},
        {0: 5},
        {0: "mlp", "lenet": 2},
        {"lenet": True},
        {"lenet": [1]},
        {"lenet": 10**400},
    ],
)
def test_mappings_of_another_form_are_refused_with_those_there_are(given: Any) -> None:
    with pytest.raises(InputError, match=r"^mine\.architectures is .*; it must be a list of names; or names with numb"):
        parsing.parse("mine", support.changed("architectures", given))


def test_in_an_experiment() -> None:
    """Names are checked, numbers too where they are known; and the settings survive a file."""
    given = {0: "mlp", 1: "torchvision:squeezenet1_1", 2: "mlp"}
    parsed = parsing.parse("mine", {**support.changed("architectures", given), "clients": 3})
    assert parsed.models() == ["mlp", "torchvision:squeezenet1_1"]
    assert json.loads(json.dumps(parsed.settings())) == parsed.settings()
    with pytest.raises(
        InputError, match=r"^mine\.architectures is 'lennet', which does not exist; did you mean 'lenet'"
    ):
        parsing.parse("mine", support.changed("architectures", {"lennet": 1.0}))
    with pytest.raises(InputError, match=r"^mine\.architectures adds up to 7; numbers must add up to the"):
        parsing.parse("mine", support.changed("architectures", {"lenet": 7}))
    with pytest.raises(InputError, match=r"^mine\.architectures: torchvision's model 'resnet19' is unknown"):
        checks.check_families("mine", parsing.form("mine", support.changed("architectures", "torchvision:resnet19")))
