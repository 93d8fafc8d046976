"""The stored sentences of reports, see the fixture `prose`."""

from collections.abc import Callable
from textwrap import dedent

import pytest
import report_prose

Run = Callable[..., pytest.RunResult]
TESTS = """
    import pytest

    def test_two(prose):
        assert prose("above", "first") and prose("below", "second")

    @pytest.mark.parametrize("n", [1, 2])
    def test_each(prose, n):
        prose(f"{n} seeds")
"""
TEXTS = {"two, first": "above", "two, second": "below", "each[1]": "1 seeds", "each[2]": "2 seeds"}


def test_each_stored_text_belongs_to_a_test(request: pytest.FixtureRequest) -> None:
    """``make prose`` drops the others."""
    gone = [name for name in report_prose.stored() if not report_prose.has_test(name)]
    assert not gone or request.config.getoption("--write-prose")


class TestFile:
    """In a folder of its own, with the three tests above and their texts."""

    @pytest.fixture
    def run(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
        monkeypatch.setattr(report_prose, "FILE", pytester.path / "prose.txt")
        monkeypatch.setattr(report_prose, "TESTS", pytester.path)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing them takes a second each time
        report_prose.FILE.write_text("")

        def run(*options: str, source: str = TESTS) -> pytest.RunResult:
            (pytester.path / "test_it.py").write_text(dedent(source))
            return pytester.runpytest_inprocess("-p", "report_prose", *options)

        run("--write-prose").assert_outcomes(passed=3)
        assert stored() == TEXTS
        return run

    def test_what_was_written_is_compared(self, run: Run) -> None:
        run().assert_outcomes(passed=3)
        run(source=TESTS.replace("above", "below")).assert_outcomes(passed=2, failed=1)
        run(source=TESTS.replace("[1, 2]", "[1, 2, 3]")).assert_outcomes(passed=3, failed=1)
        assert stored() == TEXTS, "only the option writes"

    @pytest.mark.parametrize(
        ("call", "left"), [('prose("above", "first")', {"two, first"}), ("None", set())], ids=["one", "both"]
    )
    def test_a_test_that_leaves_out_a_stored_text_fails(self, run: Run, call: str, left: set[str]) -> None:
        source = TESTS.replace('assert prose("above", "first") and prose("below", "second")', call)
        made = run(source=source)
        made.assert_outcomes(passed=2, failed=1)
        made.stdout.fnmatch_lines("*did not compare: *'test_it.py::test_two, second'*")
        run("--write-prose", source=source).assert_outcomes(passed=3)
        assert stored().keys() == left | {"each[1]", "each[2]"}

    def test_a_test_that_fails_before_its_texts_is_told_only_why(self, run: Run) -> None:
        made = run("-k", "two", source=TESTS.replace("assert prose", "assert 1 > 2 and prose"))
        made.assert_outcomes(failed=1, deselected=2)
        made.stdout.no_fnmatch_line("*did not compare*")

    def test_nothing_is_written_if_a_test_fails(self, run: Run) -> None:
        changed = TESTS.replace("seeds", "runs")
        run("--write-prose", source=changed + "        assert n == 1").assert_outcomes(passed=2, failed=1)
        assert stored() == TEXTS
        run("--write-prose", source=changed).assert_outcomes(passed=3)
        assert stored() == {**TEXTS, "each[1]": "1 runs", "each[2]": "2 runs"}

    @pytest.mark.parametrize("selected", [("-k", "each and 2"), ("test_it.py::test_each[2]",)])
    def test_texts_of_tests_that_did_not_run_stay(self, run: Run, selected: tuple[str, ...]) -> None:
        run("--write-prose", *selected, source=TESTS.replace("seeds", "runs"))
        assert stored() == {**TEXTS, "each[2]": "2 runs"}

    def test_texts_of_tests_that_are_gone_go(self, run: Run) -> None:
        run("--write-prose", "-k", "two", source=TESTS.replace("test_each", "test_others"))
        assert stored().keys() == {"two, first", "two, second"}

    def test_a_test_with_two_texts_names_them(self, run: Run) -> None:
        run("--write-prose", "-k", "two", source=TESTS.replace('"second"', '"first"')).assert_outcomes(
            failed=1, deselected=2
        )


def stored() -> dict[str, str]:
    return {name.removeprefix("test_it.py::test_"): text for name, text in report_prose.stored().items()}
