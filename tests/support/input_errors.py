"""The expectation of tests that an input is rejected."""

import re

import pytest

from ktpfl_pipeline.core.errors import InputError


def input_error(*words: str):
    """Expect an InputError of one or two sentences whose message has all of `words`, in that order."""
    return pytest.raises(InputError, match="(?s)^[^\n]*" + ".*".join(re.escape(word) for word in words))
