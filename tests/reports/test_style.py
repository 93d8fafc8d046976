from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.reports.style import BLUE, NEUTRAL, Look, look


def test_every_registered_method_has_its_own():
    found = [look(method) for method in METHODS]
    assert len(set(found)) == len(found)


def test_blue_is_kt_pfls_alone():
    assert {name for name in METHODS if look(name).color == BLUE} == {"kt_pfl", "kt_pfl_params"}


def test_an_unknown_method_has_a_fixed_one():
    assert look("mine") == look("mine")
    assert look("mine").color not in {look(method).color for method in METHODS}


def test_a_new_method_changes_the_look_of_no_other(monkeypatch):
    before = {name: look(name) for name in METHODS}
    monkeypatch.setattr("ktpfl_pipeline.methods.METHODS", {"mine": METHODS["kt_pfl"], **METHODS})
    assert {name: look(name) for name in before} == before


def test_what_a_report_is_about_is_blue_and_local_only_gray():
    assert (look("kt_pfl"), look("kt_pfl_params")) == (Look(BLUE, "o"), Look(BLUE, "D"))
    assert look("local") == Look(NEUTRAL, "o")
    assert look("fedmd") == Look("#e69f00", "X")
    assert {look(name).color for name in METHODS if name.startswith("local")} == {NEUTRAL}
