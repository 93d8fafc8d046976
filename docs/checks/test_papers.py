"""docs/reference/papers.md names the paper of each method, as the method's file does."""

import papers

from ktpfl_pipeline.methods import METHODS

OURS = {"kt_pfl_joint", "kt_pfl_likelihood", "local", "local_matched", "local_5x"}


def test_it_is_up_to_date() -> None:
    page = papers.DOCUMENT.read_text(encoding="utf-8")
    assert page == papers.document(), "write it again: python docs/generate/papers.py"


def test_every_method_has_its_paper_or_is_ours() -> None:
    assert {name for name in METHODS if f"`{name}` (" not in papers.table()} == OURS
