"""docs/catalogue.md and README name the paper of each method, as the method's file does."""

import re

import papers

from ktpfl_pipeline.methods import METHODS

OURS = {"kt_pfl_joint", "kt_pfl_likelihood", "local", "local_matched", "local_5x"}


def test_it_is_up_to_date() -> None:
    assert papers.DOCUMENT.read_text("utf-8") == papers.document(), "write it again: python docs/generate/papers.py"
    assert papers.README.read_text("utf-8") == papers.readme(papers.README.read_text("utf-8"))


def test_every_method_has_a_row_an_idea_and_its_paper_or_is_ours() -> None:
    line = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| .* \| .* \| (.*) \|$", re.MULTILINE)
    rows = {row[0]: row[1:] for row in line.findall(papers.document())}
    assert rows.keys() == METHODS.keys()
    assert {name for name, (_, _, cited) in rows.items() if "http" not in cited} == OURS
    assert [name for name, (_, idea, _) in rows.items() if not idea] == []


def test_formulas_are_found_by_heading() -> None:
    assert papers.formulas("per_fedavg_hf") == "methods_parameters.md#per-fedavg"
    assert papers.formulas("kt_pfl_joint") == "kt_pfl_variants.md#kt-pfl-joint"
    assert papers.formulas("kt_pfl_authors") == "kt_pfl.md"
    missing = [name for name in METHODS if papers.formulas(name) == "kt_pfl.md" and not name.startswith("kt_pfl")]
    assert missing == []
