"""The stored sentences of reports, see the fixture `prose`."""

import report_prose as prose


def test_each_stored_text_belongs_to_a_test() -> None:
    """``make prose`` drops the others."""
    for name in prose.stored():
        file, *_, function = name.split("::")
        assert f"def {function.partition('[')[0].partition(',')[0]}(" in (prose.TESTS / file).read_text(), name
