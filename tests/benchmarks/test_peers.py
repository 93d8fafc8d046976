"""Tests of `benchmarks/peers.py`."""

import peers
import pytest
from studies import replaced

from ktpfl_pipeline import methods


def test_the_page_has_the_table_of_the_kept_differences():
    text = peers.PAGE.read_text("utf-8")
    assert replaced(text, {peers.HEADING: peers.table()}) == text


@pytest.mark.parametrize("name", peers.CASES)
def test_a_case_names_what_our_state_has_after_a_round(name, monkeypatch, tmp_path):
    """The random images are used if the file is missing."""
    monkeypatch.setattr(peers, "RAW", tmp_path)
    case = peers.CASES[name]
    fed = peers.federation(case, (10,) * len(peers.CLIENTS))
    method = methods.create(name, case.options)
    state, _ = method.round(method.init(fed), list(fed.by_id), 1, fed)
    held = case.values(state, fed)
    assert set(held) == {place for place, *_ in case.places(fed)}
    assert all(held.values())


def test_batches_of_a_pass_come_from_the_next_stream():
    stream = [peers.torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    numbers = peers.torch.arange(24)
    loader = peers.change.Loader((numbers, -numbers), iter(stream))
    first, same, other = ([x.tolist() for x, _ in loader] for _ in stream)
    assert first == same != other
    assert [len(x) for x in first] == [10, 10, 4]


def test_arguments_of_the_other_program_have_its_defaults(tmp_path):
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "main.py").write_text("parser.add_argument('-x', '--rate', type=float, default=0.005)")
    assert peers.defaults(tmp_path) == {"rate": 0.005}
