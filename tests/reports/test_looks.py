from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.reports import looks


def test_every_registered_method_has_its_own():
    found = [looks.look(method) for method in METHODS]
    assert len(set(found)) == len(found)


def test_an_unknown_method_has_a_fixed_one():
    assert looks.look("mine") == looks.look("mine")
    assert looks.look("mine") not in {looks.look(method) for method in METHODS}


def test_looks_are_of_registered_methods():
    assert looks.LOOKS.keys() <= METHODS.keys()


def test_spares_are_not_taken():
    assert not set(looks._SPARE) & {look.colour for look in looks.LOOKS.values()}
