"""The short form of the campaign: a few faults, in runs without the report. The long form is campaign.py."""

from collections import Counter
from collections.abc import Iterator

import faults
import pytest
import zygote
from campaign import KINDS, LOST, VERDICTS, _tell, campaign
from stage import Stage

NUMBER, SEED = 8, 7
UNTIL = ("--to-outputs=hetero_digits/kt_pfl/result",)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    zygote.prepare()
    base = tmp_path_factory.getbasetemp()
    empty = base / "empty_store.db"  # the tests of the pipelines make the same
    made = Stage.build(tmp_path_factory.mktemp("faults").resolve() / "stage", empty if empty.exists() else None, UNTIL)
    yield made
    made.close()


def test_nothing_is_lost(stage: Stage) -> None:
    outcomes = campaign(stage, faults.draw(stage, 2 * NUMBER, SEED), NUMBER, _tell)
    assert len(outcomes) == NUMBER
    assert {outcome.fault.kind for outcome in outcomes} == set(KINDS)
    assert not [f"{outcome.fault}: {outcome.why}" for outcome in outcomes if outcome.verdict == LOST]
    assert Counter(outcome.verdict for outcome in outcomes).keys() == set(VERDICTS) - {LOST}
