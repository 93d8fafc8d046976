"""What tests expect of a refusal."""

import re

import pytest

from ktpfl_pipeline.core.errors import InputError


def refused(*words: str):
    """Expect an InputError of one or two sentences whose message holds every one of `words`, in that order."""
    return pytest.raises(InputError, match="(?s)^[^\n]*" + ".*".join(re.escape(word) for word in words))
