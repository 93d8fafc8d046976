from pathlib import Path

import pytest

from ktpfl_pipeline.core.errors import InputError, unwritable


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


def test_a_link_to_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "reports").symlink_to("unmounted")
    (tmp_path / "whole").mkdir()
    lost = FileExistsError(17, "File exists", str(tmp_path / "reports"))
    assert f"{tmp_path}/reports is a link to unmounted, which does not exist." in str(unwritable("The report", lost))
    full = OSError(28, "No space left on device", str(tmp_path / "whole" / "x"))
    assert "(No space left on device): free some space" in str(unwritable("The report", full))
