import pytest

from ktpfl_pipeline.core.errors import InputError


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "store postgresql://mlflow:s3cret-pw@127.0.0.1:5999/mlflow (x)",
            "store postgresql://mlflow:***@127.0.0.1:5999/mlflow (x)",
        ),
        ("http://a:b@c and http://d:e/f@g", "http://a:***@c and http://d:***@g"),
        ("http://127.0.0.1:5000/x", "http://127.0.0.1:5000/x"),
    ],
)
def test_passwords_in_addresses_are_masked(message: str, shown: str) -> None:
    assert str(InputError(message)) == shown
