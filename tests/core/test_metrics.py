"""Sums over kinds of traffic."""

from ktpfl_pipeline.core.metrics import LEDGERS, Traffic


def test_ledgers_are_sums_of_kinds() -> None:
    every = Traffic(**{kind: 10**place for place, kind in enumerate(vars(Traffic()))})
    ledgers = {ledger: getattr(every, ledger) for ledger in LEDGERS}
    assert sum(ledgers.values()) == sum(10**place for place in range(len(vars(Traffic()))))
    assert ledgers["knowledge_up"] == 10**0 + 10**2 + 10**4 + 10**6
    assert ledgers["knowledge_down"] == 10**1 + 10**3 + 10**5 + 10**7
    assert vars(every + every) == {kind: 2 * size for kind, size in vars(every).items()}
