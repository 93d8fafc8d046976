"""What tells runs apart: equal settings have one digest, and different ones a sentence that names each difference."""

from ktpfl_pipeline.core.identity import differences, digest, flat

NESTED = {"rounds": 3, "training": {"epochs": 1, "privacy": {"delta": 0.1}}}


def test_digest() -> None:
    """From sha256 of the JSON text: other digits would make every finished run another."""
    assert digest({"a": 0.5, "b": [1, None]}) == digest({"b": [1, None], "a": 0.5}) == "b9ed64369410c63a"
    assert digest({"a": 0.5}) != digest({"a": 0.6})


def test_flat() -> None:
    assert flat(NESTED) == {"rounds": 3, "training.epochs": 1, "training.privacy.delta": 0.1}


def test_differences_are_sorted_and_cover_what_only_one_has() -> None:
    now = {"rounds": 4, "training": {"epochs": 1, "privacy": None}}
    assert differences(NESTED, {**NESTED}) == ""
    assert differences(NESTED, {**NESTED, "rounds": 4, "added": "x"}) == "added=null, now 'x', rounds=3, now 4"
    assert differences(NESTED, now) == "rounds=3, now 4, training.privacy.delta=0.1, now null"
